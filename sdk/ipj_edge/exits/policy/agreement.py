"""Exit rules that compare an exit with those before it: equal predictions in a row, or little change of the values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ipj_edge.exits.policy.softmax import CLASS_MEANINGS, FEW_CLASSES, class_scores, or_never
from ipj_edge.protocols import Array, ExitRule, RowExitRule, RowScorer, Scorer
from ipj_edge.values import Meaning


class Patience:
    """How many exits in a row, this one included, predict the same class (PABEE, arXiv 2006.04152)."""

    name = "patience"
    meanings = CLASS_MEANINGS
    looks_back: int | None = None
    parameters: tuple[str, ...] = ()

    def bounds(self, exits: int) -> tuple[float, float]:
        """Return 1 and the number of exits."""
        return 1.0, float(exits)

    def bind(self, exit_index: int, meaning: Meaning, parameters: Mapping[str, float]) -> Scorer:
        """Return a scorer of the length of the run of equal predictions that ends at this exit."""

        def scores(outputs: Sequence[Array]) -> Array:
            here = class_scores(outputs[-1])
            predicted = here.argmax(axis=1)
            same = ~np.isnan(here).any(axis=1)
            length = np.where(same, 1.0, -np.inf)
            for earlier in reversed(outputs[:-1]):
                same &= (earlier.argmax(axis=1) == predicted) & ~np.isnan(earlier).any(axis=1)
                length += same
            return length

        return scores

    def bind_row(self, exit_index: int, meaning: Meaning, parameters: Mapping[str, float]) -> RowScorer:
        """Return the same for one row."""
        scores = self.bind(exit_index, meaning, parameters)

        def one(outputs: Sequence[Array]) -> float:
            if outputs[-1].shape[1] > FEW_CLASSES:
                return float(scores(outputs)[0])
            rows = [output.tolist()[0] for output in outputs]
            if not all(map(math.isfinite, map(sum, rows))):
                return math.nan  # the vectorised form tells a NaN from an infinity
            predicted = [row.index(max(row)) for row in rows]
            return float(_equal_at_end(predicted))

        return one


class Change:
    """Minus the largest change of any output value since the exit before, for regression and for several labels.

    A threshold of −0.02 lets a sample leave when no value moved by more than 0.02. Logits count as those of
    independent labels: they pass through the logistic function first.
    """

    name = "change"
    meanings: tuple[Meaning, ...] = ("other", "logits", "probabilities")
    looks_back: int | None = 1
    parameters: tuple[str, ...] = ()

    def bounds(self, exits: int) -> tuple[float, float]:
        """Return −inf and 0."""
        return -math.inf, 0.0

    def bind(self, exit_index: int, meaning: Meaning, parameters: Mapping[str, float]) -> Scorer:
        """Return a scorer of −max |f − f_before|; the first exit has nothing to compare with and scores −inf."""
        if exit_index == 0:
            return lambda outputs: np.full(len(outputs[-1]), -np.inf)

        def scores(outputs: Sequence[Array]) -> Array:
            before, here = (_label_values(output, meaning) for output in outputs[-2:])
            with np.errstate(invalid="ignore"):  # inf − inf is NaN, and NaN never leaves
                return or_never(-np.abs(here - before).max(axis=1))

        return scores

    def bind_row(self, exit_index: int, meaning: Meaning, parameters: Mapping[str, float]) -> RowScorer | None:
        """Return the same for one row."""
        if exit_index == 0:
            return lambda outputs: -math.inf
        scores = self.bind(exit_index, meaning, parameters)

        def one(outputs: Sequence[Array]) -> float:
            if outputs[-1].size > FEW_CLASSES:
                return float(scores(outputs)[0])
            before, here = outputs[-2].ravel().tolist(), outputs[-1].ravel().tolist()
            if meaning == "logits":
                before, here = [_logistic(value) for value in before], [_logistic(value) for value in here]
            steps = [abs(now - then) for now, then in zip(here, before, strict=True)]
            return -max(steps) if math.isfinite(sum(steps)) else math.nan

        return one


def _equal_at_end(values: list[int]) -> int:
    """Return how many values at the end are equal to the last."""
    length = 1
    while length < len(values) and values[-length - 1] == values[-1]:
        length += 1
    return length


def _logistic(value: float) -> float:
    return 0.5 + 0.5 * math.tanh(0.5 * value)


def _label_values(output: Array, meaning: Meaning) -> Array:
    values = np.asarray(output, dtype=np.float64).reshape(len(output), -1)
    # The logistic function by way of tanh, which neither overflows nor warns.
    return 0.5 + 0.5 * np.tanh(0.5 * values) if meaning == "logits" else values


_: tuple[type[ExitRule], ...] = (Patience, Change)
_row: tuple[type[RowExitRule], ...] = (Patience, Change)
