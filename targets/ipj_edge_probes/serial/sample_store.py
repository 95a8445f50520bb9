"""Samples between two drains, in bounded memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# About 17 minutes at 1 ksample/s: 16 MiB, and as much again for the arrays a drain returns.
CAPACITY = 1 << 20
MAX_ARRAYS = 256


class SampleStore:
    """Times and watts not yet drained.

    A backlog over the capacity is averaged in pairs, and so is what comes after it, until the next drain: a
    window that nobody drains for an hour loses resolution in time, never energy and never its start.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self.clear()

    def append(self, times_s: Array, watts: Array) -> None:
        """Add samples, both of shape (n,)."""
        if not len(times_s):
            return
        self._single.append(np.stack((times_s, watts)))
        self._singles += len(times_s)
        # Many small arrays would cost more than the samples in them.
        if len(self._single) >= MAX_ARRAYS or self._held + self._singles >= self._capacity:
            self._average()
        if self._held + self._singles >= self._capacity:
            self._halve()

    def take(self) -> tuple[Array, Array]:
        """Return and forget the samples held: (times, watts)."""
        held = np.concatenate([*self._blocks, *self._single], axis=1)
        self.clear()
        return held[0], held[1]

    def clear(self) -> None:
        """Forget the samples held."""
        # Samples as they came, and means of `stride` samples each before them; arrays of shape (2, n).
        self._single: list[Array] = [np.empty((2, 0))]
        self._blocks: list[Array] = []
        self._singles = self._held = 0
        self._stride = 1

    def _average(self) -> None:
        """Turn single samples into means of a stride each; less than a stride stays single."""
        if self._singles < self._stride:
            return
        single = np.concatenate(self._single, axis=1)
        whole = self._singles - self._singles % self._stride
        self._blocks.append(_means(single[:, :whole], self._stride))
        self._single = [single[:, whole:].copy()]
        self._singles -= whole
        self._held += whole // self._stride

    def _halve(self) -> None:
        blocks = np.concatenate(self._blocks, axis=1)
        even = self._held & ~1
        self._blocks = [_means(blocks[:, :even], 2), blocks[:, even:].copy()]
        self._held = even // 2 + self._held - even
        self._stride *= 2


class BlockMean:
    """Averages every ``size`` values; the same means however the values are cut into chunks."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._rest: Array = np.empty(0)

    def feed(self, values: Array) -> Array:
        """Return the means of the blocks that are now complete, shape (blocks,)."""
        if len(self._rest):
            values = np.concatenate((self._rest, values))
        whole = len(values) - len(values) % self._size
        self._rest = values[whole:].copy()
        return _means(values[:whole], self._size)


def _means(values: Array, size: int) -> Array:
    """Return the means of each ``size`` values along the last axis."""
    return np.asarray(values.reshape(*values.shape[:-1], -1, size).mean(axis=-1), np.float64)
