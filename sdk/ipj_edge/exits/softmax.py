"""Softmax before its last division, row by row in float64: exponents (z − max z)/T, weights exp(exponent), total."""

from __future__ import annotations

from collections.abc import Callable
from math import log
from typing import NamedTuple

import numpy as np

from ipj_edge.errors import ConfigError
from ipj_edge.protocols import Array
from ipj_edge.values import Meaning

FEW_CLASSES = 32
"""Up to so many classes a loop over Python floats is quicker than numpy for one row (``benchmarks/exit_gate.py``)."""

_SMALLEST_EXPONENT = -700.0  # exp of it is still a normal number, and 0 · −inf cannot come up
_SMALLEST_PROBABILITY = 1e-300


class Weights(NamedTuple):
    """Exponents and weights of shape (n, classes), totals of shape (n,). NaN where a row holds no finite largest."""

    exponents: Array
    weights: Array
    total: Array


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


def weights(output: Array, meaning: Meaning, temperature: float) -> Weights:
    """Return the softmax weights of every row. Each row is computed alone: the batch does not change its bits."""
    exponents = logits_of(output, meaning)
    with np.errstate(invalid="ignore"):  # inf − inf: such a row is NaN and never leaves
        exponents -= np.maximum.reduce(exponents, axis=1, keepdims=True)
    if temperature != 1.0:
        exponents *= 1.0 / temperature
    np.maximum(exponents, _SMALLEST_EXPONENT, out=exponents)
    found = np.exp(exponents)
    return Weights(exponents, found, np.add.reduce(found, axis=1))


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
