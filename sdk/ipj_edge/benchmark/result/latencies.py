"""Latencies in bounded memory: every sample of a short run, an evenly spaced part of a long one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from ipj_edge.protocols import Array

CAPACITY = 1 << 17
_BINS = 80


class Histogram(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of latencies between edges on a logarithmic scale.

    Attributes:
        edges_s: Edges in seconds, rising; one more than there are counts.
        counts: Kept samples in each bin.
    """

    edges_s: tuple[float, ...]
    counts: tuple[int, ...]


class Latencies:
    """A store of latencies. When it is full it forgets every second sample and from then on keeps half as many.

    What is kept is spaced evenly over the run, so its percentiles estimate those of the whole; count, mean, least and
    most are exact.

    Attributes:
        count: Samples seen.
        stride: One sample of so many is kept.
        least_s: Smallest sample in seconds; infinity without any.
        most_s: Largest sample in seconds.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.count, self.stride = 0, 1
        self.least_s, self.most_s = float("inf"), 0.0
        self._total_s = 0.0
        self._kept: Array = np.empty(capacity)
        self._size = 0

    def add(self, chunk: Array) -> None:
        """Add samples in seconds, shape (n,)."""
        if chunk.size == 0:
            return
        while self._size + len(chunk[(-self.count) % self.stride :: self.stride]) > self._kept.size:
            self._halve()
        picked = chunk[(-self.count) % self.stride :: self.stride]
        self._kept[self._size : self._size + picked.size] = picked
        self._size += picked.size
        self.count += chunk.size
        self._total_s += float(chunk.sum())
        self.least_s, self.most_s = min(self.least_s, float(chunk.min())), max(self.most_s, float(chunk.max()))

    @classmethod
    def restored(
        cls, kept: Array, *, count: int, stride: int, total_s: float, ends_s: tuple[float, float]
    ) -> Latencies:
        """Return the store that had kept these samples; ends_s are its least and most."""
        store = cls(max(2, kept.size))
        store._kept[: kept.size] = kept
        store._size, store.count, store.stride = kept.size, count, stride
        store._total_s = total_s
        store.least_s, store.most_s = ends_s
        return store

    @property
    def kept(self) -> Array:
        """The samples kept, in order, float64 of shape (n,)."""
        return self._kept[: self._size]

    @property
    def total_s(self) -> float:
        """The sum of all samples in seconds."""
        return self._total_s

    def percentiles(self, wanted: Sequence[float]) -> tuple[float, ...]:
        """Return percentiles in seconds."""
        return tuple(float(value) for value in np.percentile(self.kept, wanted))

    def histogram(self) -> Histogram:
        """Return the distribution of what is kept over logarithmic bins; the last one holds the far tail."""
        low, body, high = np.maximum(np.percentile(self.kept, (0, 99.9, 100)), 1e-9)
        body = max(body, 1.001 * low)
        edges = np.geomspace(low, body, _BINS + 1)
        # The last thousandth may reach far out: it gets one bin, so that the rest keeps its detail.
        edges = np.append(edges, max(high, 1.001 * body))
        # Rounding must not leave the ends outside their own bins.
        counts, _ = np.histogram(np.clip(self.kept, edges[0], edges[-1]), edges)
        return Histogram(edges_s=tuple(map(float, edges)), counts=tuple(map(int, counts)))

    def _halve(self) -> None:
        half = self._kept[: self._size : 2].copy()
        self._kept[: half.size] = half
        self._size = half.size
        self.stride *= 2


def joined(parts: Sequence[Latencies]) -> Latencies:
    """Return one store for the samples of several, each thinned to the coarsest stride among them."""
    stride = max(part.stride for part in parts)
    thinned = np.concatenate([part.kept[:: stride // part.stride] for part in parts])
    while thinned.size > CAPACITY:
        thinned, stride = thinned[::2], 2 * stride
    return Latencies.restored(
        thinned,
        count=sum(part.count for part in parts),
        stride=stride,
        total_s=sum(part.total_s for part in parts),
        ends_s=(min(part.least_s for part in parts), max(part.most_s for part in parts)),
    )
