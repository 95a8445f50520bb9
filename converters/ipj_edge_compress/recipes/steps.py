"""The steps of a recipe: each takes a model and returns one, with what it has to report."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import nn

from ipj_edge_compress.distillation.distil import distil
from ipj_edge_compress.distillation.teachers import TeacherAnswers
from ipj_edge_compress.exits.multi_exit import MultiExit
from ipj_edge_compress.exits.training import train_heads, train_jointly
from ipj_edge_compress.lowrank.factorise import factorise
from ipj_edge_compress.pruning.prune import CostFunction, PruneReport, prune
from ipj_edge_compress.quantize.training import train_quantized
from ipj_edge_compress.recipes.factories import build
from ipj_edge_compress.recipes.measured_cost import MeasuredCost, What
from ipj_edge_compress.recipes.recipe import (
    DistilStep,
    ExitsStep,
    LowRankStep,
    PruneStep,
    QatStep,
    Step,
    TrainStep,
    low_rank_plan,
    prune_plan,
    teaching,
    train_plan,
)
from ipj_edge_compress.recipes.run_folder import RunFolder
from ipj_edge_compress.training.batches import ArrayBatches
from ipj_edge_compress.training.losses import cross_entropy
from ipj_edge_compress.training.plans import EpochFigures, TrainPlan, TrainReport
from ipj_edge_compress.training.scores import accuracy
from ipj_edge_compress.training.varied import VariedImages

# What a step returns: the model, its report, and warnings.
Done = tuple[nn.Module, Any, tuple[str, ...]]


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """What the steps work with.

    Attributes:
        train: Training batches.
        plain: The same, as they are: not varied.
        probe: Power probe of the run.
        val: Validation batches.
        example: Example inputs.
        calibration: Batches of inputs that ranges come from.
        folder: Folder of the run.
        place: Finds a file that the recipe names.
        progress: Called after each epoch with the number of epochs in all.
    """

    train: ArrayBatches | VariedImages
    plain: ArrayBatches
    probe: str
    val: ArrayBatches
    example: torch.Tensor
    calibration: tuple[torch.Tensor, ...]
    folder: RunFolder
    place: Callable[[str], Path]
    progress: Callable[[int, int, EpochFigures], None]

    def training(self, number: int, epochs: int, part: str = "") -> dict[str, Any]:
        """Return what every training of a step is given."""
        return {
            "score": lambda net: accuracy(net, self.val),
            "checkpoint": self.folder.state / f"step_{number}_training{part}.pt",
            "progress": lambda epoch, figures: self.progress(epoch, epochs, figures),
        }


def perform(step: Step, number: int, module: nn.Module, bench: Bench) -> Done:
    """Do one step."""
    do: dict[type, Callable[..., Done]] = {
        TrainStep: _train,
        DistilStep: _distil,
        PruneStep: _prune,
        LowRankStep: _low_rank,
        ExitsStep: _exits,
        QatStep: _qat,
    }
    return do[type(step)](step, number, module, bench)


def _train(step: TrainStep, number: int, module: nn.Module, bench: Bench) -> Done:
    from ipj_edge_compress.training.loop import train

    loss = cross_entropy(label_smoothing=step.label_smoothing)
    report = train(module, bench.train, train_plan(step), loss=loss, **bench.training(number, step.epochs))
    return module, _told(report), report.warnings


def _distil(step: DistilStep, number: int, module: nn.Module, bench: Bench) -> Done:
    weights = None if step.teacher_weights is None else bench.place(step.teacher_weights)
    teacher = TeacherAnswers(build(step.teacher, weights), bench.folder.state / "teacher.npz")
    report = distil(
        module, teacher, bench.train, train_plan(step), teaching=teaching(step),
        **bench.training(number, step.epochs),
    )  # fmt: skip
    return module, {**_told(report), "teacher_samples": teacher.misses}, report.warnings


def _prune(step: PruneStep, number: int, module: nn.Module, bench: Bench) -> Done:
    """Prune and recover in rounds; the model from before is the teacher."""
    before = deepcopy(module)
    reports: list[TrainReport] = []

    def recover(pruned: nn.Module) -> None:
        if step.finetune_epochs:
            plan = TrainPlan(
                epochs=step.finetune_epochs, learning_rate=step.learning_rate, schedule=step.schedule,
                precision=step.precision, seed=step.seed,
            )  # fmt: skip
            answers = TeacherAnswers(before, bench.folder.state / f"step_{number}_teacher.npz")
            options = bench.training(number, step.finetune_epochs, f"_{len(reports)}")
            reports.append(distil(pruned, answers, bench.train, plan, teaching=teaching(step), **options))

    report: PruneReport = prune(
        module, bench.example, prune_plan(step), batches=bench.plain, cost=_cost(step, number, bench), recover=recover
    )
    told = msgspec.to_builtins(report) | {"finetuning": [_told(one) for one in reports]}
    return module, told, tuple(warning for one in reports for warning in one.warnings)


def _cost(step: PruneStep, number: int, bench: Bench) -> CostFunction | None:
    """Return what has to fall; None for multiply-accumulates."""
    if not step.on:
        return None
    folder = bench.folder.state / f"step_{number}_measured"
    folder.mkdir(exist_ok=True)
    what: What = "latency" if step.target_latency is not None else "joules"
    return MeasuredCost(what, step.on, bench.example, folder, probe=bench.probe)


def _low_rank(step: LowRankStep, number: int, module: nn.Module, bench: Bench) -> Done:
    told: dict[str, Any] = {}

    def make() -> nn.Module:
        told.update(msgspec.to_builtins(factorise(module, bench.example[:1], low_rank_plan(step), batches=bench.plain)))
        return module

    # Which layers are kept was measured: a resumed run must not measure again.
    made = bench.folder.once(f"step_{number}_factored", make)
    kept = [name for name, one in told.get("layers", {}).items() if one["kept"]]
    warnings = ("no layer gets faster at a lower rank; the model is as before",) if told and not kept else ()
    if step.finetune_epochs:
        from ipj_edge_compress.training.loop import train

        plan = TrainPlan(epochs=step.finetune_epochs, learning_rate=step.learning_rate, seed=step.seed)
        told["finetuning"] = _told(train(made, bench.train, plan, **bench.training(number, step.finetune_epochs)))
    return made, told, warnings


def _exits(step: ExitsStep, number: int, module: nn.Module, bench: Bench) -> Done:
    torch.manual_seed(step.seed)
    net = MultiExit.attach(module, dict.fromkeys(step.at, step.head), example=bench.example)
    plan = TrainPlan(epochs=step.epochs, learning_rate=step.learning_rate, seed=step.seed)
    teach = train_jointly if step.jointly else train_heads
    report = teach(net, bench.train, plan, **bench.training(number, step.epochs))
    return net, {**_told(report), "exits": list(net.names)}, report.warnings


def _qat(step: QatStep, number: int, module: nn.Module, bench: Bench) -> Done:
    plan = TrainPlan(epochs=step.epochs, learning_rate=step.learning_rate, seed=step.seed)
    made = train_quantized(module, bench.train, bench.calibration, plan, **bench.training(number, step.epochs))
    bench.folder.keep_ranges(made.ranges)
    report = made.report
    assert report is not None
    return made.module, {**_told(report), "ranges": len(made.ranges)}, report.warnings


def _told(report: TrainReport) -> dict[str, Any]:
    return dict(msgspec.to_builtins(report))
