"""Softmax before its last division, row by row in float64: the exponents (z − max z)/T."""

from __future__ import annotations

from collections.abc import Callable
from math import log

import numpy as np

from ipj_edge.errors import ConfigError
from ipj_edge.protocols import Array
from ipj_edge.values import Meaning

CLASS_MEANINGS: tuple[Meaning, ...] = ("logits", "probabilities")

FEW_CLASSES = 32
"""Up to so many classes a loop over Python floats beats numpy for one row (``benchmarks/exits/exit_gate.py``)."""

_SMALLEST_EXPONENT = -700.0  # exp of it is still a normal number, and 0 · −inf cannot come up
_SMALLEST_PROBABILITY = 1e-300


def class_scores(output: Array) -> Array:
    """Return an output of class scores as it is.

    Raises:
        ConfigError: it is not of shape (n, classes) with two classes or more.
    """
    if output.ndim != 2 or output.shape[1] < 2:
        raise ConfigError(
            f"an exit answers with shape {output.shape}; a rule on classes needs (n, classes) with at least "
            "2 classes: use the rule 'change'"
        )
    return output


def logits_of(output: Array, meaning: Meaning) -> Array:
    """Return an output as logits in float64, a copy in C order: probabilities become their logarithms."""
    values = np.array(class_scores(output), dtype=np.float64, order="C")
    if meaning == "probabilities":
        np.log(np.maximum(values, _SMALLEST_PROBABILITY, out=values), out=values)
    return values


def exponents(output: Array, meaning: Meaning, temperature: float) -> Array:
    """Return (z − max z)/T of every row in float64, a new array; NaN where a row holds no finite largest.

    Each row is computed alone: the batch it is in does not change its bits.
    """
    values = logits_of(output, meaning)
    with np.errstate(invalid="ignore"):  # inf − inf: such a row is NaN and never leaves
        values -= np.maximum.reduce(values, axis=1, keepdims=True)
    if temperature != 1.0:
        values *= 1.0 / temperature
    return np.maximum(values, _SMALLEST_EXPONENT, out=values)


def row_exponents(meaning: Meaning, temperature: float) -> Callable[[Array], list[float]]:
    """Return a function from one row, shape (1, classes), to its exponents as Python floats."""
    inverse = 1.0 / temperature

    def of_logits(output: Array) -> list[float]:
        row = output.tolist()[0]
        top = max(row)
        return [value - top for value in row]

    def of_scaled_logits(output: Array) -> list[float]:
        row = output.tolist()[0]
        top = max(row)
        return [(value - top) * inverse for value in row]

    def of_probabilities(output: Array) -> list[float]:
        row = [log(max(value, _SMALLEST_PROBABILITY)) for value in output.tolist()[0]]
        top = max(row)
        return [(value - top) * inverse for value in row]

    if meaning == "probabilities":
        return of_probabilities
    return of_logits if temperature == 1.0 else of_scaled_logits


def or_never(scores: Array) -> Array:
    """Let a sample whose outputs are no numbers score −inf."""
    scores[np.isnan(scores)] = -np.inf
    return scores
