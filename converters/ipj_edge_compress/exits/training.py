"""Training of networks with exits: heads alone on a frozen trunk, or everything together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from ipj_edge_compress.exits.multi_exit import MultiExit, first
from ipj_edge_compress.training.batches import Batches, check_labels
from ipj_edge_compress.training.loop import EpochProgress, ScoreFunction, train
from ipj_edge_compress.training.losses import LossFunction, self_distillation, softened_kl, weighted
from ipj_edge_compress.training.plans import TrainPlan, TrainReport


def train_heads(
    module: MultiExit,
    batches: Batches,
    plan: TrainPlan | None = None,
    *,
    temperature: float = 3.0,
    share: float = 0.5,
    score: ScoreFunction | None = None,
    checkpoint: Path | None = None,
    progress: EpochProgress = lambda _epoch, _figures: None,
) -> TrainReport:
    """Train the early heads on a frozen trunk; the last exit stays as it is, bit for bit.

    The trunk (stages and last head) runs in evaluation mode, without gradients; its last exit also teaches.

    Args:
        module: The network.
        batches: See `train`.
        plan: See `train`.
        temperature: Softens the last exit's answers.
        share: Weight of the teaching, against the labels; 0 learns from labels alone.
        score: See `train`.
        checkpoint: See `train`.
        progress: See `train`.
    """
    trunk: tuple[nn.Module, ...] = (module.stages, module.heads[-1])
    return train(
        module, batches, plan, loss=_heads_loss(temperature, share), score=score, frozen=trunk,
        checkpoint=checkpoint, progress=progress,
    )  # fmt: skip


def train_jointly(
    module: MultiExit,
    batches: Batches,
    plan: TrainPlan | None = None,
    *,
    loss: LossFunction | None = None,
    score: ScoreFunction | None = None,
    checkpoint: Path | None = None,
    progress: EpochProgress = lambda _epoch, _figures: None,
) -> TrainReport:
    """Train trunk and heads together; by default the last exit teaches the earlier ones (see `self_distillation`)."""
    chosen = loss or self_distillation()
    return train(module, batches, plan, loss=chosen, score=score, checkpoint=checkpoint, progress=progress)


def _heads_loss(temperature: float, share: float) -> LossFunction:
    def loss(module: Any, inputs: tuple[Any, ...], targets: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            features = [first(value) for value in module.features(*inputs)]
            last = module.heads[-1](features[-1])
        check_labels(targets, last.shape[-1])
        early = [head(value) for head, value in zip(module.heads, features, strict=True)][:-1]
        terms = [_taught(one, last, targets, temperature, share) for one in early]
        return weighted(terms, [1.0] * len(terms))

    return loss


def _taught(
    logits: torch.Tensor, teacher: torch.Tensor, targets: torch.Tensor, temperature: float, share: float
) -> torch.Tensor:
    hard = nn.functional.cross_entropy(logits, targets)
    return (1 - share) * hard + share * softened_kl(logits, teacher, temperature)
