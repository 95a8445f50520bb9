"""Figures of the slices of an output along every axis but the batch: a whole-tensor figure hides a dead one.

Quantizing ``concat(640·x, x)`` scores a cosine of 0.999997 while its small half is zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ipj_edge.protocols import Array

# Values of an output that are looked at along each axis. Of larger outputs every slice is still looked at, on fewer
# samples: evenly spaced ones, two at least.
MOST_VALUES = 1 << 24


class Slices(NamedTuple):
    """Figures of all slices along one axis, each of shape (slices,).

    Attributes:
        axis: The axis.
        is_last: Whether it is the last one.
        l2: ‖bundle − source‖₂ / ‖source‖₂.
        rms: Root of the mean squared difference.
        want_spread: Largest less smallest value of the source.
        got_spread: Largest less smallest value of the bundle.
        want_peak: Largest absolute value of the source.
    """

    axis: int
    is_last: bool
    l2: Array
    rms: Array
    want_spread: Array
    got_spread: Array
    want_peak: Array

    def name(self, index: int) -> str:
        """Return e.g. ``slice 4 of axis 1``."""
        return f"slice {index} of {self.axis_name}"

    @property
    def axis_name(self) -> str:
        """The axis in words."""
        return "the last axis" if self.is_last else f"axis {self.axis}"


def slices_of(want: Array, got: Array, batch_axis: int | None) -> tuple[Slices, ...]:
    """Return figures of the slices along every axis but the batch; empty where a sample is one value, or nothing.

    Args:
        want: The source's answers, float64.
        got: The bundle's answers, of the same shape.
        batch_axis: Axis of the samples; None where there is none.
    """
    if want.ndim < 2 or want.size == 0:
        return ()
    want, got = _bounded((want, got), batch_axis)
    axes = [axis for axis in range(want.ndim) if axis != batch_axis]
    # Along an axis of size 1 there is one slice, the whole: one such axis is enough.
    axes = [axis for axis in axes if want.shape[axis] > 1] or axes[-1:]
    error, size = (got - want) ** 2, want**2
    return tuple(_along(axis, want, got, error, size) for axis in axes)


def _along(axis: int, want: Array, got: Array, squared_error: Array, squared: Array) -> Slices:
    rest = tuple(other for other in range(want.ndim) if other != axis)
    error, size = np.sqrt(squared_error.sum(axis=rest)), np.sqrt(squared.sum(axis=rest))
    low, high = want.min(axis=rest), want.max(axis=rest)
    return Slices(
        axis=axis,
        is_last=axis == want.ndim - 1,
        l2=np.divide(error, size, out=np.where(error > 0, np.inf, 0.0), where=size > 0),
        rms=error / np.sqrt(want.size / want.shape[axis]),
        want_spread=high - low,
        got_spread=got.max(axis=rest) - got.min(axis=rest),
        want_peak=np.maximum(np.abs(low), np.abs(high)),
    )


def _bounded(arrays: Sequence[Array], batch_axis: int | None) -> tuple[Array, ...]:
    """Return the arrays, or evenly spaced samples of them where they hold more values than are looked at."""
    size = arrays[0].size
    if batch_axis is None or size <= MOST_VALUES:
        return tuple(arrays)
    samples = arrays[0].shape[batch_axis]
    kept = min(samples, max(2, MOST_VALUES * samples // size))
    chosen = np.linspace(0, samples - 1, kept).round().astype(np.intp)
    return tuple(array.take(chosen, axis=batch_axis) for array in arrays)
