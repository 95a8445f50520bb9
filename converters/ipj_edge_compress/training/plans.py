"""How to train: a frozen value, so that a recipe can hold it and a report can show it."""

from __future__ import annotations

from typing import Literal

import msgspec

from ipj_edge.errors import ConfigError


class TrainPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How long, how fast and in which arithmetic to train.

    Attributes:
        epochs: Passes over the data.
        learning_rate: Peak learning rate.
        optimizer: ``adamw``, or ``sgd`` with Nesterov momentum 0.9.
        weight_decay: Not applied to biases and normalisation.
        schedule: ``cosine`` falls to zero, ``one-cycle`` rises first, ``constant`` stays.
        precision: ``bf16`` and ``fp16`` mean autocast; fp16 scales gradients and needs CUDA.
        accumulate: Batches whose gradients make one step; samples weigh alike, however uneven the batches.
        compile: Run the model through ``torch.compile``; its warm-up is reported apart.
        clip_norm: Largest norm of the gradient; None does not clip.
        patience: Stop after this many epochs without a better figure on the validation data; None never stops.
        keep_best: End with the weights of the best epoch on the validation data rather than the last.
        seed: Seed of everything random.
    """

    epochs: int = 10
    learning_rate: float = 1e-3
    optimizer: Literal["adamw", "sgd"] = "adamw"
    weight_decay: float = 1e-4
    schedule: Literal["cosine", "one-cycle", "constant"] = "cosine"
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    accumulate: int = 1
    compile: bool = False
    clip_norm: float | None = None
    patience: int | None = None
    keep_best: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "accumulate"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is at least 1, got {getattr(self, name)}")
        if not self.learning_rate > 0:
            raise ConfigError(f"learning_rate is above 0, got {self.learning_rate:g}")
        if self.patience is not None and self.patience < 1:
            raise ConfigError(f"patience is at least 1, got {self.patience}")


class EpochFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One epoch: mean loss, score on the validation data (None without), seconds, learning rate at its end."""

    loss: float
    score: float | None
    seconds: float
    learning_rate: float


class TrainReport(msgspec.Struct, frozen=True, kw_only=True):
    """What training came to.

    Attributes:
        epochs: Figures of each epoch, earlier runs that were resumed included.
        best_epoch: Index of the epoch with the best score; None without validation data.
        stopped_early: Whether patience ended it.
        compile_s: Seconds of the first step with ``compile``, which compiles; 0 without.
        waiting_share: Share of the time spent waiting for data.
        warnings: What the user should know.
    """

    epochs: tuple[EpochFigures, ...]
    best_epoch: int | None = None
    stopped_early: bool = False
    compile_s: float = 0.0
    waiting_share: float = 0.0
    warnings: tuple[str, ...] = ()
