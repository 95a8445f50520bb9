"""What an early answer can cost: losses of shape (n, exits), column k for a sample that is answered by exit k."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ipj_edge.errors import ConfigError, DataError
from ipj_edge.protocols import Array


def predictions(outputs: Sequence[Array]) -> Array:
    """Return the predicted class of every sample at every exit, integers of shape (n, exits).

    Raises:
        ConfigError: the exits differ in their number of classes, or do not answer with classes.
    """
    shapes = [output.shape[1:] for output in outputs]
    if any(len(shape) != 1 for shape in shapes):
        raise ConfigError(f"the exits answer with shapes {shapes}: expected (n, classes)")
    if len(set(shapes)) > 1:
        counts = ", ".join(str(shape[0]) for shape in shapes)
        raise ConfigError(
            f"the exits know different numbers of classes ({counts}): one answer cannot replace the other"
        )
    return np.stack([output.argmax(axis=1) for output in outputs], axis=1)


def check_labels(labels: Array, n: int, classes: int) -> Array:
    """Return labels as integers of shape (n,).

    Raises:
        DataError: another number of labels, no integers, or outside 0..classes − 1.
    """
    found = np.asarray(labels)
    if found.shape != (n,):
        raise DataError(f"expected {n} labels, one a sample; got shape {found.shape}")
    if not np.issubdtype(found.dtype, np.integer):
        raise DataError(f"expected integer labels, got {found.dtype}")
    if found.min() < 0 or found.max() >= classes:
        raise DataError(f"labels run from {found.min()} to {found.max()}, the model knows classes 0..{classes - 1}")
    return found


def harm(predicted: Array, labels: Array) -> Array:
    """Return 1 where an exit's answer is wrong and the last exit's is right, else 0: at least the drop in accuracy."""
    right = np.equal(predicted, labels[:, None])
    return np.logical_and(~right, right[:, -1:]).astype(np.float64)


def inconsistency(predicted: Array) -> Array:
    """Return 1 where an exit's answer differs from the last exit's, else 0; needs no labels."""
    return np.not_equal(predicted, predicted[:, -1:]).astype(np.float64)


def error(predicted: Array, labels: Array) -> Array:
    """Return 1 where an exit's answer is wrong, else 0."""
    return np.not_equal(predicted, labels[:, None]).astype(np.float64)


def deviation(outputs: Sequence[Array], scale: float) -> Array:
    """Return the largest distance of an exit's values to the last exit's, as a share of scale, at most 1.

    Args:
        outputs: Real values, each of shape (n, …).
        scale: The distance that counts as a whole loss, in the outputs' unit.

    Raises:
        ConfigError: scale is not above 0, or the exits differ in shape.
    """
    if not 0 < scale < math.inf:
        raise ConfigError(f"the scale of a deviation must be above 0 and finite, got {scale}")
    if len({output.shape for output in outputs}) > 1:
        raise ConfigError(f"the exits answer with different shapes: {[output.shape[1:] for output in outputs]}")
    flat = [np.asarray(output, dtype=np.float64).reshape(len(output), -1) for output in outputs]
    distance = np.stack([np.abs(values - flat[-1]).max(axis=1) for values in flat], axis=1)
    distance[np.isnan(distance)] = math.inf  # an exit without a number is as wrong as can be
    return np.minimum(1.0, distance / scale)
