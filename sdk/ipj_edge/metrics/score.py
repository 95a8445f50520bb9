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

IntervalKind = Literal["wilson", "bootstrap", "none"]


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of quality.

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
        named = [name for name, meaning in self.meanings.items() if meaning in ("logits", "probabilities")]
        if not named:
            raise DataError(f"{metric}: no output of this bundle holds logits or probabilities")
        return named[0]


class Metric(Protocol):
    """A figure of quality, gathered batch by batch in memory that holds at most a few numbers a sample."""

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
