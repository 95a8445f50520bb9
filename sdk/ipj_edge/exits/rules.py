"""The exit rules: from the outputs so far to a score that says how sure the model is; higher is surer.

The vectorised form of a rule decides. It computes each row alone and in float64, so that a sample scores the same in
every batch. For one row of few classes, Python floats are several times quicker than a handful of numpy calls; where
such a score comes near a threshold the vectorised form decides after all (`ipj_edge.exits.gate`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ipj_edge.errors import ConfigError
from ipj_edge.exits.softmax import FEW_CLASSES, class_scores, row_exponents, weights
from ipj_edge.protocols import Array, ExitRule, RowExitRule, RowScorer, Scorer
from ipj_edge.values import Meaning

TEMPERATURE = "temperature"
_CLASSES: tuple[Meaning, ...] = ("logits", "probabilities")


class MaxProbability:
    """Probability of the most probable class, 0..1 (MSDNet, arXiv 1703.09844)."""

    name = "max-probability"
    meanings = _CLASSES
    looks_back: int | None = 0
    parameters: tuple[str, ...] = (TEMPERATURE,)

    def bounds(self, exits: int) -> tuple[float, float]:
        """Return 0 and 1."""
        return 0.0, 1.0

    def bind(self, exit_index: int, meaning: Meaning, parameters: Mapping[str, float]) -> Scorer:
        """Return a scorer of 1 / Σ exp(zᵢ − max z)."""
        temperature = _temperature(parameters)

        def scores(outputs: Sequence[Array]) -> Array:
            return _or_never(1.0 / weights(outputs[-1], meaning, temperature).total)

        return scores

    def bind_row(self, exit_index: int, meaning: Meaning, parameters: Mapping[str, float]) -> RowScorer:
        """Return the same for one row."""
        exp = math.exp

        def score(exponents: list[float]) -> float:
            total = 0.0
            for exponent in exponents:
                total += exp(exponent)
            return 1.0 / total

        return _row_scorer(self, exit_index, meaning, parameters, score)


class Entropy:
    """One minus the entropy as a share of its largest value, 0..1 (BranchyNet, arXiv 1709.01686)."""

    name = "entropy"
    meanings = _CLASSES
    looks_back: int | None = 0
    parameters: tuple[str, ...] = (TEMPERATURE,)

    def bounds(self, exits: int) -> tuple[float, float]:
        """Return 0 and 1."""
        return 0.0, 1.0

    def bind(self, exit_index: int, meaning: Meaning, parameters: Mapping[str, float]) -> Scorer:
        """Return a scorer of 1 − H / log C, where H = log Σw − Σ w·log w / Σw of the weights w = exp(z − max z)."""
        temperature = _temperature(parameters)

        def scores(outputs: Sequence[Array]) -> Array:
            exponents, found, total = weights(outputs[-1], meaning, temperature)
            entropy = np.log(total) - np.add.reduce(found * exponents, axis=1) / total
            return _or_never(np.clip(1.0 - entropy / math.log(found.shape[1]), 0.0, 1.0))

        return scores

    def bind_row(self, exit_index: int, meaning: Meaning, parameters: Mapping[str, float]) -> RowScorer:
        """Return the same for one row."""
        exp, log = math.exp, math.log

        def score(exponents: list[float]) -> float:
            total = spread = 0.0
            for exponent in exponents:
                weight = exp(exponent)
                total += weight
                spread += weight * exponent
            return 1.0 - (log(total) - spread / total) / log(len(exponents))

        return _row_scorer(self, exit_index, meaning, parameters, score)


class Margin:
    """Probability of the most probable class minus that of the next, 0..1."""

    name = "margin"
    meanings = _CLASSES
    looks_back: int | None = 0
    parameters: tuple[str, ...] = (TEMPERATURE,)

    def bounds(self, exits: int) -> tuple[float, float]:
        """Return 0 and 1."""
        return 0.0, 1.0

    def bind(self, exit_index: int, meaning: Meaning, parameters: Mapping[str, float]) -> Scorer:
        """Return a scorer of (1 − w₂) / Σw, where w₂ is the second largest of the weights w = exp(z − max z)."""
        temperature = _temperature(parameters)

        def scores(outputs: Sequence[Array]) -> Array:
            _, found, total = weights(outputs[-1], meaning, temperature)
            second = np.partition(found, -2, axis=1)[:, -2]
            return _or_never((1.0 - second) / total)

        return scores

    def bind_row(self, exit_index: int, meaning: Meaning, parameters: Mapping[str, float]) -> RowScorer:
        """Return the same for one row."""
        exp = math.exp

        def score(exponents: list[float]) -> float:
            total = 0.0
            for exponent in exponents:
                total += exp(exponent)
            return (1.0 - exp(sorted(exponents)[-2])) / total

        return _row_scorer(self, exit_index, meaning, parameters, score)


class Patience:
    """How many exits in a row, this one included, predict the same class (PABEE, arXiv 2006.04152)."""

    name = "patience"
    meanings = _CLASSES
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
                return _or_never(-np.abs(here - before).max(axis=1))

        return scores


def _row_scorer(
    rule: ExitRule,
    exit_index: int,
    meaning: Meaning,
    parameters: Mapping[str, float],
    score: Callable[[list[float]], float],
) -> RowScorer:
    """Join the exponents of a row and a score of them; rows of many classes go through the vectorised form."""
    exponents = row_exponents(meaning, _temperature(parameters))
    scores = rule.bind(exit_index, meaning, parameters)

    def one(outputs: Sequence[Array]) -> float:
        output = outputs[-1]
        if output.shape[1] > FEW_CLASSES:
            return float(scores(outputs)[0])
        return score(exponents(output))

    return one


def _label_values(output: Array, meaning: Meaning) -> Array:
    values = np.asarray(output, dtype=np.float64).reshape(len(output), -1)
    # The logistic function by way of tanh, which neither overflows nor warns.
    return 0.5 + 0.5 * np.tanh(0.5 * values) if meaning == "logits" else values


def _temperature(parameters: Mapping[str, float]) -> float:
    temperature = parameters.get(TEMPERATURE, 1.0)
    if not 0 < temperature < math.inf:
        raise ConfigError(f"a temperature must be above 0 and finite, got {temperature}")
    return temperature


def _or_never(scores: Array) -> Array:
    """Let a sample whose outputs are no numbers score −inf."""
    scores[np.isnan(scores)] = -np.inf
    return scores


_: tuple[type[ExitRule], ...] = (MaxProbability, Entropy, Margin, Patience, Change)
_row: tuple[type[RowExitRule], ...] = (MaxProbability, Entropy, Margin)
