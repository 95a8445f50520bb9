"""Samples between two drains, in bounded memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# About 17 minutes at 1 ksample/s: 16 MiB, and as much again for the arrays a drain returns.
CAPACITY = 1 << 20


class SampleStore:
    """Times and watts not yet drained.

    A backlog over the capacity is averaged in pairs: a window that nobody drains for an hour loses resolution in
    time, never energy and never its start.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._times: list[Array] = []
        self._watts: list[Array] = []
        self._held = 0

    def append(self, times_s: Array, watts: Array) -> None:
        """Add samples, both of shape (n,)."""
        if not len(times_s):
            return
        self._times.append(times_s)
        self._watts.append(watts)
        self._held += len(times_s)
        if self._held >= self._capacity:
            self._halve()

    def take(self) -> tuple[Array, Array]:
        """Return and forget the samples held: (times, watts)."""
        times_s = np.concatenate(self._times) if self._times else np.empty(0)
        watts = np.concatenate(self._watts) if self._watts else np.empty(0)
        self.clear()
        return times_s, watts

    def clear(self) -> None:
        """Forget the samples held."""
        self._times, self._watts, self._held = [], [], 0

    def _halve(self) -> None:
        times_s, watts = self.take()
        for column, held in ((times_s, self._times), (watts, self._watts)):
            even = len(column) & ~1
            held += [column[:even].reshape(-1, 2).mean(axis=1), column[even:].copy()]
        self._held = (len(times_s) + 1) // 2


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
        return np.asarray(values[:whole].reshape(-1, self._size).mean(axis=1), np.float64)
