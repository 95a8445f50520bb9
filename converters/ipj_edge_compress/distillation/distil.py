"""Distillation: a student learns from a teacher's logits and, if asked, from its features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import nn
from torch.nn import functional

from ipj_edge.errors import ConfigError
from ipj_edge_compress.distillation.features import FeatureTap
from ipj_edge_compress.distillation.teachers import TeacherAnswers
from ipj_edge_compress.errors import ModelError
from ipj_edge_compress.training.batches import Batches, as_inputs, check_labels
from ipj_edge_compress.training.loop import EpochProgress, ScoreFunction, train
from ipj_edge_compress.training.losses import LossFunction, logits_of, softened_kl, weighted
from ipj_edge_compress.training.modes import evaluating
from ipj_edge_compress.training.plans import TrainPlan, TrainReport


class Teaching(msgspec.Struct, frozen=True, kw_only=True):
    """What a student learns from its teacher.

    Attributes:
        temperature: T softens both answers.
        alpha: Share of the teacher, 0..1; the rest are the labels.
        features: Modules of the student to pull towards modules of the teacher, e.g. ``{"layer1": "layer1"}``: as they
            are where their shapes are equal, else through a projector that is thrown away afterwards. The teacher then
            runs on every batch.
        feature_weight: Weight of the mean squared error of the features.
    """

    temperature: float = 4.0
    alpha: float = 0.9
    features: dict[str, str] = {}
    feature_weight: float = 1.0

    def __post_init__(self) -> None:
        if not self.temperature > 0 or not 0 <= self.alpha <= 1:
            raise ConfigError(
                f"temperature is above 0 and alpha from 0 to 1, got {self.temperature:g} and {self.alpha:g}"
            )


def distil(
    student: nn.Module,
    teacher: nn.Module | TeacherAnswers,
    batches: Batches,
    plan: TrainPlan | None = None,
    *,
    teaching: Teaching | None = None,
    score: ScoreFunction | None = None,
    checkpoint: Path | None = None,
    progress: EpochProgress = lambda _epoch, _figures: None,
) -> TrainReport:
    """Train a student in place: (1 − alpha) · CE + alpha · T² · KL(teacher ‖ student), the batch's mean.

    The teacher answers each sample once (a sample is known by its bytes); samples of batches that say they are
    ``varied`` are new in every pass, and so are its answers. Every exit of a student with several learns from it.

    Args:
        student: Any module.
        teacher: Any module; or `TeacherAnswers`, which may be kept on disk and filled before.
        batches: See `train`.
        plan: See `train`.
        teaching: Temperature, shares, features.
        score: See `train`; it is given the student.
        checkpoint: See `train`.
        progress: See `train`.

    Raises:
        ModelError: teacher and student differ in their number of classes, or a module is not there.
        TrainingError: see `train`.
    """
    how = teaching or Teaching()
    answers = teacher if isinstance(teacher, TeacherAnswers) else TeacherAnswers(teacher)
    if not how.features:
        varied = getattr(batches, "varied", False)
        if not varied:
            answers.fill(batches)
        loss = distillation_loss(answers.fresh if varied else answers, how)
        return train(student, batches, plan, loss=loss, score=score, checkpoint=checkpoint, progress=progress)
    pair = _StudentWithProjectors(student, answers.teacher, how.features, batches)
    loss = _feature_loss(answers, pair.teacher_tap, how)
    scored = None if score is None else lambda wrapper: score(wrapper.student)
    try:
        return train(pair, batches, plan, loss=loss, score=scored, checkpoint=checkpoint, progress=progress)
    finally:
        pair.close()
        student.eval()


def distillation_loss(answers: Callable[[tuple[Any, ...]], torch.Tensor], teaching: Teaching) -> LossFunction:
    """Return the loss of `distil` without features.

    Args:
        answers: The teacher's logits for the inputs of a batch.
        teaching: Temperature and share.
    """

    def loss(module: nn.Module, inputs: tuple[Any, ...], targets: torch.Tensor) -> torch.Tensor:
        return _taught(logits_of(module(*inputs)), answers(inputs), targets, teaching)

    return loss


def _taught(exits: list[torch.Tensor], teacher: torch.Tensor, targets: torch.Tensor, how: Teaching) -> torch.Tensor:
    if exits[-1].shape != teacher.shape:
        raise ModelError(
            f"the teacher answers {tuple(teacher.shape)}, the student {tuple(exits[-1].shape)}: "
            "they need the same classes"
        )
    check_labels(targets, teacher.shape[-1])
    terms = [
        (1 - how.alpha) * functional.cross_entropy(one, targets)
        + how.alpha * softened_kl(one, teacher, how.temperature)
        for one in exits
    ]
    return weighted(terms, None)


class _StudentWithProjectors(nn.Module):
    """A student whose tapped features go through projectors to the teacher's width."""

    def __init__(self, student: nn.Module, teacher: nn.Module, pairs: Mapping[str, str], batches: Batches) -> None:
        super().__init__()
        self.student = student
        self.tap = FeatureTap(student, list(pairs))
        self.teacher_tap = FeatureTap(teacher, list(pairs.values()))
        inputs = as_inputs(next(iter(batches))[0])
        with evaluating(student, teacher):
            student(*inputs)
            teacher(*inputs)
        self.projectors = nn.ModuleList(
            projector(own, wanted) for own, wanted in zip(self.tap.take(), self.teacher_tap.take(), strict=True)
        )

    def forward(self, *inputs: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Return the student's logits and its projected features."""
        logits = logits_of(self.student(*inputs))
        return logits, [project(one) for project, one in zip(self.projectors, self.tap.take(), strict=True)]

    def close(self) -> None:
        self.tap.close()
        self.teacher_tap.close()


def projector(own: torch.Tensor, wanted: torch.Tensor) -> nn.Module:
    """Return a layer from features of a student to features of a teacher: nothing, 1×1 convolution or linear.

    Raises:
        ModelError: the features have different ranks.
    """
    if own.ndim != wanted.ndim or own.ndim not in (2, 3, 4):
        raise ModelError(f"features of shape {tuple(own.shape)} cannot be compared with {tuple(wanted.shape)}")
    if own.shape == wanted.shape:
        return nn.Identity()
    if own.ndim < 4:
        return nn.Linear(own.shape[-1], wanted.shape[-1])
    layer = nn.Conv2d(own.shape[1], wanted.shape[1], 1)
    if own.shape[2:] == wanted.shape[2:]:
        return layer
    return nn.Sequential(nn.AdaptiveAvgPool2d(tuple(wanted.shape[2:])), layer)


def _feature_loss(answers: TeacherAnswers, teacher_tap: FeatureTap, teaching: Teaching) -> LossFunction:
    def loss(pair: nn.Module, inputs: tuple[Any, ...], targets: torch.Tensor) -> torch.Tensor:
        logits, projected = pair(*inputs)
        with evaluating(answers.teacher):
            teacher = logits_of(answers.teacher(*inputs))[-1]
        wanted = teacher_tap.take()
        errors = [functional.mse_loss(one, other) for one, other in zip(projected, wanted, strict=True)]
        return _taught(logits, teacher, targets, teaching) + teaching.feature_weight * torch.stack(errors).mean()

    return loss
