"""What a metric is given and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

import msgspec
import numpy as np

from ipj_edge.errors import DataError
from ipj_edge.protocols import Array
from ipj_edge.stats import wilson_interval
from ipj_edge.values import Meaning

# Labels with this value are not counted: torch's losses and most data sets use it. In labels of bytes 255 is its place.
IGNORED = -100
IGNORED_BYTE = 255
NO_CLASS = -1
SCORES = ("logits", "probabilities")

IntervalKind = Literal["wilson", "bootstrap", "none"]


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """What a metric gives for a bundle's answers.

    Attributes:
        metric: Name of the metric.
        value: The figure; None with a reason.
        low: Lower end of the 95 % interval; None where there is none.
        high: Upper end, likewise.
        n: Samples behind it.
        interval: How the interval was made.
        higher_is_better: Direction.
        is_rate: Whether it is a rate of correct answers, so that answers per joule can be told.
    """

    metric: str
    value: float | None
    reason: str = ""
    low: float | None = None
    high: float | None = None
    n: int
    interval: IntervalKind = "none"
    higher_is_better: bool = True
    is_rate: bool = False


class Batch:
    """Answers to some samples.

    Attributes:
        outputs: The model's outputs by name, first axis = samples.
        labels: What the answers should have been, first axis = samples.
        inputs: The model's inputs by name.
        meanings: What each output holds.
    """

    def __init__(
        self,
        outputs: Mapping[str, Array],
        labels: Array,
        inputs: Mapping[str, Array],
        meanings: Mapping[str, Meaning | None],
    ) -> None:
        self.outputs, self.labels, self.inputs, self.meanings = outputs, labels, inputs, meanings

    def scores(self, metric: str) -> Array:
        """Return the first output that holds class scores.

        Raises:
            DataError: there is none.
        """
        return self.outputs[self._scored(metric)]

    @property
    def has_scores(self) -> bool:
        """Whether an output holds scores of classes."""
        return any(meaning in SCORES for meaning in self.meanings.values())

    def classes(self, metric: str) -> Array:
        """Return the class that is answered for each label, shaped as the labels; -1 where a score is no number.

        That is the place of the largest score, or the first output of whole numbers that is shaped as the labels: a
        class number a sample, or a label map.

        Raises:
            DataError: no output is either.
        """
        wanted = self.labels.shape
        for name, meaning in self.meanings.items():
            axis = _class_axis(self.outputs[name], wanted) if meaning in SCORES else None
            if axis is not None:
                values = self.outputs[name]
                return np.where(np.isnan(values).any(axis=axis), NO_CLASS, values.argmax(axis=axis))
        numbers = self.class_numbers()
        if numbers is None:
            raise DataError(f"{metric}: no output holds logits, probabilities or class numbers for labels of {wanted}")
        return numbers

    def class_numbers(self) -> Array | None:
        """Return the first output of whole numbers that is shaped as the labels, axes of size 1 aside, or None."""
        wanted = self.labels.shape
        for values in self.outputs.values():
            fits = values.dtype.kind in "iub" and len(values) == wanted[0] if values.ndim else False
            if fits and _without_ones(values.shape) == _without_ones(wanted):
                return values.reshape(wanted).astype(np.int64)
        return None

    def log_probabilities(self, metric: str) -> Array:
        """Return log probabilities of the classes, the last axis, in float64; see `scores`."""
        name = self._scored(metric)
        values = self.outputs[name].astype(np.float64)
        if self.meanings[name] == "probabilities":
            with np.errstate(divide="ignore"):
                return np.log(values)
        shifted = values - values.max(axis=-1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))  # type: ignore[no-any-return]

    def values(self) -> Array:
        """Return the first output."""
        return next(iter(self.outputs.values()))

    def _scored(self, metric: str) -> str:
        named = [name for name, meaning in self.meanings.items() if meaning in SCORES]
        if not named:
            raise DataError(f"{metric}: no output of this bundle holds logits or probabilities")
        return named[0]


def counted(labels: Array) -> Array:
    """Return where labels count, bool of their shape."""
    return labels != (IGNORED_BYTE if labels.dtype == np.uint8 else IGNORED)  # type: ignore[no-any-return]


def _class_axis(scores: Array, labels: tuple[int, ...]) -> int | None:
    """Return the axis of the classes: without it scores are shaped as the labels."""
    if scores.ndim != len(labels) + 1:
        return None
    axes = (axis for axis in (1, scores.ndim - 1) if (*scores.shape[:axis], *scores.shape[axis + 1 :]) == labels)
    return next(axes, None)


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[0], *(size for size in shape[1:] if size != 1))


class Metric(Protocol):
    """A way to judge answers by labels, gathered batch by batch in memory that holds at most a few numbers a sample."""

    name: str
    is_rate: bool
    higher_is_better: bool

    def add(self, batch: Batch) -> None:
        """Take one batch in.

        Raises:
            DataError: the outputs or labels are not what the metric needs.
        """

    def score(self) -> Score:
        """Return the figure over all batches."""


def rate(metric: str, correct: int, n: int) -> Score:
    """Return a share of correct answers with its Wilson interval."""
    interval = wilson_interval(correct, n)
    return Score(
        metric=metric, value=interval.value, low=interval.low, high=interval.high, n=n, interval="wilson",
        higher_is_better=True, is_rate=True,
    )  # fmt: skip
