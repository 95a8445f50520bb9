"""Exit rules on the class probabilities of one exit: how sure the model is; a higher score is surer.

The vectorised form of a rule decides. It computes each row alone and in float64, so that a sample scores the same in
every batch. For one row of few classes, Python floats are several times quicker than a handful of numpy calls; where
such a score comes near a threshold the vectorised form decides after all (`ipj_edge.exits.run.gate`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ipj_edge.errors import ConfigError
from ipj_edge.exits.policy.softmax import CLASS_MEANINGS, FEW_CLASSES, exponents, or_never, row_exponents
from ipj_edge.protocols import Array, ExitRule, RowExitRule, RowScorer, Scorer
from ipj_edge.values import Meaning

TEMPERATURE = "temperature"


class MaxProbability:
    """Probability of the most probable class, 0..1 (MSDNet, arXiv 1703.09844)."""

    name = "max-probability"
    meanings = CLASS_MEANINGS
    looks_back: int | None = 0
    parameters: tuple[str, ...] = (TEMPERATURE,)

    def bounds(self, exits: int) -> tuple[float, float]:
        """Return 0 and 1."""
        return 0.0, 1.0

    def bind(self, exit_index: int, meaning: Meaning, parameters: Mapping[str, float]) -> Scorer:
        """Return a scorer of 1 / Σ exp(zᵢ − max z)."""
        temperature = _temperature(parameters)

        def scores(outputs: Sequence[Array]) -> Array:
            found = exponents(outputs[-1], meaning, temperature)
            # In place: a second array of a large batch would cost more in page faults than the exponentials.
            return or_never(1.0 / np.add.reduce(np.exp(found, out=found), axis=1))

        return scores

    def bind_row(self, exit_index: int, meaning: Meaning, parameters: Mapping[str, float]) -> RowScorer:
        """Return the same for one row."""
        exp = math.exp

        def score(row: list[float]) -> float:
            total = 0.0
            for exponent in row:
                total += exp(exponent)
            return 1.0 / total

        return _row_scorer(self, exit_index, meaning, parameters, score)


class Entropy:
    """One minus the entropy as a share of its largest value, 0..1 (BranchyNet, arXiv 1709.01686)."""

    name = "entropy"
    meanings = CLASS_MEANINGS
    looks_back: int | None = 0
    parameters: tuple[str, ...] = (TEMPERATURE,)

    def bounds(self, exits: int) -> tuple[float, float]:
        """Return 0 and 1."""
        return 0.0, 1.0

    def bind(self, exit_index: int, meaning: Meaning, parameters: Mapping[str, float]) -> Scorer:
        """Return a scorer of 1 − H / log C, where H = log Σw − Σ w·log w / Σw of the weights w = exp(z − max z)."""
        temperature = _temperature(parameters)

        def scores(outputs: Sequence[Array]) -> Array:
            found = exponents(outputs[-1], meaning, temperature)
            weights = np.exp(found)
            total = np.add.reduce(weights, axis=1)
            entropy = np.log(total) - np.add.reduce(np.multiply(weights, found, out=weights), axis=1) / total
            return or_never(np.clip(1.0 - entropy / math.log(found.shape[1]), 0.0, 1.0))

        return scores

    def bind_row(self, exit_index: int, meaning: Meaning, parameters: Mapping[str, float]) -> RowScorer:
        """Return the same for one row."""
        exp, log = math.exp, math.log

        def score(row: list[float]) -> float:
            total = spread = 0.0
            for exponent in row:
                weight = exp(exponent)
                total += weight
                spread += weight * exponent
            return 1.0 - (log(total) - spread / total) / log(len(row))

        return _row_scorer(self, exit_index, meaning, parameters, score)


class Margin:
    """Probability of the most probable class minus that of the next, 0..1."""

    name = "margin"
    meanings = CLASS_MEANINGS
    looks_back: int | None = 0
    parameters: tuple[str, ...] = (TEMPERATURE,)

    def bounds(self, exits: int) -> tuple[float, float]:
        """Return 0 and 1."""
        return 0.0, 1.0

    def bind(self, exit_index: int, meaning: Meaning, parameters: Mapping[str, float]) -> Scorer:
        """Return a scorer of (1 − w₂) / Σw, where w₂ is the second largest of the weights w = exp(z − max z)."""
        temperature = _temperature(parameters)

        def scores(outputs: Sequence[Array]) -> Array:
            found = exponents(outputs[-1], meaning, temperature)
            weights = np.exp(found, out=found)
            total = np.add.reduce(weights, axis=1)
            weights.partition(-2, axis=1)
            return or_never((1.0 - weights[:, -2]) / total)

        return scores

    def bind_row(self, exit_index: int, meaning: Meaning, parameters: Mapping[str, float]) -> RowScorer:
        """Return the same for one row."""
        exp = math.exp

        def score(row: list[float]) -> float:
            total = 0.0
            for exponent in row:
                total += exp(exponent)
            return (1.0 - exp(sorted(row)[-2])) / total

        return _row_scorer(self, exit_index, meaning, parameters, score)


def _row_scorer(
    rule: ExitRule,
    exit_index: int,
    meaning: Meaning,
    parameters: Mapping[str, float],
    score: Callable[[list[float]], float],
) -> RowScorer:
    """Join the exponents of a row and a score of them; rows of many classes go through the vectorised form."""
    to_exponents = row_exponents(meaning, _temperature(parameters))
    scores = rule.bind(exit_index, meaning, parameters)

    def one(outputs: Sequence[Array]) -> float:
        output = outputs[-1]
        if output.shape[1] > FEW_CLASSES:
            return float(scores(outputs)[0])
        return score(to_exponents(output))

    return one


def _temperature(parameters: Mapping[str, float]) -> float:
    temperature = parameters.get(TEMPERATURE, 1.0)
    if not 0 < temperature < math.inf:
        raise ConfigError(f"a temperature must be above 0 and finite, got {temperature}")
    return temperature


_: tuple[type[ExitRule], ...] = (MaxProbability, Entropy, Margin)
_row: tuple[type[RowExitRule], ...] = (MaxProbability, Entropy, Margin)
