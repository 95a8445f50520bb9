"""Training: one readable loop, resumable, with diagnostics that name the cause."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
import torch
from torch import nn

from ipj_edge.errors import ConfigError
from ipj_edge_compress.errors import TrainingError
from ipj_edge_compress.training.batches import Batches, TrainingBatch, check_batch, samples_of, to_device
from ipj_edge_compress.training.checkpoints import (
    load_checkpoint,
    random_states,
    restore_random_states,
    save_atomically,
)
from ipj_edge_compress.training.diagnostics import explain_non_finite, parameters_without_gradient
from ipj_edge_compress.training.losses import LossFunction, cross_entropy
from ipj_edge_compress.training.optimizers import learning_rate_at, make_optimizer, set_learning_rate
from ipj_edge_compress.training.plans import EpochFigures, TrainPlan, TrainReport

ScoreFunction = Callable[[nn.Module], float]
EpochProgress = Callable[[int, EpochFigures], None]

_SLOW_DATA = 0.5
_LEAST_SCALE = 1.0


def train(
    module: nn.Module,
    batches: Batches,
    plan: TrainPlan | None = None,
    *,
    loss: LossFunction | None = None,
    score: ScoreFunction | None = None,
    frozen: tuple[nn.Module, ...] = (),
    checkpoint: Path | None = None,
    progress: EpochProgress = lambda _epoch, _figures: None,
) -> TrainReport:
    """Train a module in place and leave it in evaluation mode.

    Args:
        module: Any module, on the device it is to be trained on.
        batches: Pairs (inputs, targets), gone through once an epoch; has ``set_epoch`` or an ``epoch`` set if it has
            one, so that its order can depend on it.
        plan: How long and how fast.
        loss: (module, inputs, targets) → mean loss over the samples; default: cross entropy over all exits.
        score: The larger the better, e.g. accuracy on validation data; decides the best epoch.
        frozen: Parts that are neither trained nor put into training mode.
        checkpoint: File to resume from where it is there, written after each epoch; on the CPU a resumed training
            ends with the same bits as one that was never interrupted.
        progress: Called after each epoch.

    Raises:
        TrainingError: the loss is no number (names the layer), the gradient scale collapsed, or there is no data.
        DataError: a batch that cannot be used.
        DestinationError: the checkpoint cannot be written.
    """
    return _Training(module, batches, plan or TrainPlan(), loss or cross_entropy(), score, frozen).run(
        checkpoint, progress
    )


class _Training:
    """The state of one training."""

    def __init__(
        self, module: nn.Module, batches: Batches, plan: TrainPlan, loss: LossFunction, score: ScoreFunction | None,
        frozen: tuple[nn.Module, ...],
    ) -> None:  # fmt: skip
        self.module, self.batches, self.plan, self.loss, self.score = module, batches, plan, loss, score
        self.frozen = frozen
        self.device = next(module.parameters()).device
        if plan.precision == "fp16" and self.device.type != "cuda":
            raise ConfigError("fp16 training needs CUDA (gradients underflow without its scaler): use bf16 here")
        kept = {parameter for part in frozen for parameter in part.parameters()}
        self.optimizer = make_optimizer((one for one in module.parameters() if one not in kept), plan)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=plan.precision == "fp16")
        self.forward: Any = torch.compile(module) if plan.compile else module
        self.epochs: list[EpochFigures] = []
        self.best: dict[str, Any] | None = None
        self.stopped = False
        self.steps_an_epoch = _steps(batches, plan.accumulate)
        self.steps = 0
        self.compile_s = self.waiting_s = self.working_s = 0.0
        self.warnings: list[str] = []

    def run(self, checkpoint: Path | None, progress: EpochProgress) -> TrainReport:
        torch.manual_seed(self.plan.seed)
        if checkpoint is not None:
            self._resume(checkpoint)
        while len(self.epochs) < self.plan.epochs and not self.stopped:
            figures = self._epoch(len(self.epochs))
            self.epochs.append(figures)
            self._judge()
            if checkpoint is not None:
                self._save(checkpoint)
            progress(len(self.epochs), figures)
        if self.plan.keep_best and self.best is not None:
            self.module.load_state_dict(self.best)
        self.module.eval()
        return self._report()

    def _epoch(self, epoch: int) -> EpochFigures:
        self.module.train()
        for part in self.frozen:
            part.eval()
        _set_epoch(self.batches, epoch)
        start, total, samples = monotonic(), 0.0, 0
        for group in self._groups(first=epoch == 0):
            count = sum(samples_of(batch) for batch in group)
            total += self._step(group, count) * count
            samples += count
        if not samples:
            raise TrainingError(
                "the batches are empty: an iterator can be gone through once only, give a list or a loader"
            )
        if self.steps_an_epoch is None:
            self.steps_an_epoch = self.steps
        rate = float(self.optimizer.param_groups[0]["lr"])
        score = None if self.score is None else self._scored()
        return EpochFigures(loss=total / samples, score=score, seconds=monotonic() - start, learning_rate=rate)

    def _scored(self) -> float:
        """Score without disturbing the random generators: with or without a score the training is the same."""
        assert self.score is not None
        states = random_states()
        value = float(self.score(self.module.eval()))
        restore_random_states(states)
        return value

    def _groups(self, *, first: bool) -> Iterator[list[TrainingBatch]]:
        """Yield the batches of each step, and keep account of the time spent waiting for them."""
        iterator, number = iter(self.batches), 0
        while True:
            start = monotonic()
            group = list(islice(iterator, self.plan.accumulate))
            waited = monotonic()
            if not group:
                return
            yield [check_batch(batch, number + i) for i, batch in enumerate(group)] if first else group
            number += len(group)
            self.waiting_s += waited - start
            self.working_s += monotonic() - waited

    def _step(self, group: list[TrainingBatch], count: int) -> float:
        """Do one optimizer step over some batches, every sample with the same weight; return the mean loss."""
        started = monotonic()
        set_learning_rate(self.optimizer, learning_rate_at(self.plan, self._done()))
        self.optimizer.zero_grad(set_to_none=True)
        mean = 0.0
        for batch in group:
            inputs, targets = to_device(batch, self.device)
            with self._autocast():
                value = self.loss(self.forward, inputs, targets) * (samples_of(batch) / count)
            part = float(value.detach())
            if not math.isfinite(part):
                raise explain_non_finite(self.module, inputs, part, self.steps)
            self.scaler.scale(value).backward()
            mean += part
        if self.steps == 0:
            self._first_step(started)
        self._apply()
        self.steps += 1
        return mean

    def _first_step(self, started: float) -> None:
        if self.plan.compile:
            self.compile_s = monotonic() - started
        kept = {parameter for part in self.frozen for parameter in part.parameters()}
        names = dict(self.module.named_parameters())
        unused = [name for name in parameters_without_gradient(self.module) if names[name] not in kept]
        if unused:
            self.warnings.append(f"no gradient reaches {', '.join(unused[:5])}{' …' if len(unused) > 5 else ''}")

    def _apply(self) -> None:
        self.scaler.unscale_(self.optimizer)
        if self.plan.clip_norm is not None:
            parameters = [one for group in self.optimizer.param_groups for one in group["params"]]
            nn.utils.clip_grad_norm_(parameters, self.plan.clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.scaler.is_enabled() and self.scaler.get_scale() < _LEAST_SCALE:
            raise TrainingError(
                f"the fp16 gradient scale collapsed below 1 at step {self.steps}: gradients overflow; "
                "use bf16 or clip_norm"
            )

    def _done(self) -> float:
        """Return the share of the training that is over; by epochs while their length is not known."""
        if self.steps_an_epoch is None:
            return len(self.epochs) / self.plan.epochs
        return min(1.0, self.steps / (self.steps_an_epoch * self.plan.epochs))

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.plan.precision == "fp32":
            return nullcontext()
        dtype = torch.bfloat16 if self.plan.precision == "bf16" else torch.float16
        return torch.autocast(self.device.type, dtype)

    def _best_epoch(self) -> int | None:
        scores = [figures.score for figures in self.epochs]
        known = [score for score in scores if score is not None]
        return scores.index(max(known)) if known else None

    def _judge(self) -> None:
        best = self._best_epoch()
        if best is None:
            return
        if self.plan.keep_best and best == len(self.epochs) - 1:
            self.best = deepcopy(self.module.state_dict())
        if self.plan.patience is not None:
            self.stopped = len(self.epochs) - 1 - best >= self.plan.patience

    def _save(self, path: Path) -> None:
        save_atomically(
            {
                "module": self.module.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scaler": self.scaler.state_dict(),
                "random": random_states(),
                "epochs": msgspec.to_builtins(self.epochs),
                "steps": self.steps,
                "steps_an_epoch": self.steps_an_epoch,
                "best": self.best,
                "stopped": self.stopped,
                "plan": msgspec.to_builtins(self.plan),
                "warnings": self.warnings,
            },
            path,
        )

    def _resume(self, path: Path) -> None:
        kept = load_checkpoint(path)
        if kept is None:
            return
        if kept["plan"] != msgspec.to_builtins(self.plan):
            raise TrainingError(f"the checkpoint {path} is of another plan: remove it to start over")
        self.module.load_state_dict(kept["module"])
        self.optimizer.load_state_dict(kept["optimizer"])
        self.scaler.load_state_dict(kept["scaler"])
        restore_random_states(kept["random"])
        self.epochs = [msgspec.convert(one, EpochFigures) for one in kept["epochs"]]
        self.steps, self.steps_an_epoch = kept["steps"], kept["steps_an_epoch"]
        self.best, self.stopped, self.warnings = kept["best"], kept["stopped"], list(kept["warnings"])

    def _report(self) -> TrainReport:
        total = self.waiting_s + self.working_s
        share = self.waiting_s / total if total else 0.0
        warnings = list(self.warnings)
        if share > _SLOW_DATA:
            warnings.append(
                f"{100 * share:.0f} % of the time went into waiting for data: load it faster (more workers, a cache)"
            )
        return TrainReport(
            epochs=tuple(self.epochs),
            best_epoch=self._best_epoch(),
            stopped_early=self.stopped,
            compile_s=self.compile_s,
            waiting_share=share,
            warnings=tuple(warnings),
        )


def _set_epoch(batches: Any, epoch: int) -> None:
    """Tell batches that can vary their order which epoch it is."""
    if hasattr(batches, "set_epoch"):
        batches.set_epoch(epoch)
    elif hasattr(batches, "epoch"):
        batches.epoch = epoch


def _steps(batches: Any, accumulate: int) -> int | None:
    """Return the steps of an epoch, where the batches know their number."""
    try:
        return -(-len(batches) // accumulate)
    except TypeError:
        return None
