"""The power trace behind a bench: the probe's own samples, thinned to what a plot can show."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from ipj_edge.protocols import Array
from ipj_edge.values import Rail

POINTS = 2048


class PowerTrace(msgspec.Struct, frozen=True, kw_only=True):
    """Mean power over equal parts of time.

    Attributes:
        time_s: Middle of each part, in seconds from the beginning of the measurement, as the windows have it.
        power_w: Mean of the samples in it, summed over the rails that count, in watts.
    """

    time_s: tuple[float, ...]
    power_w: tuple[float, ...]


class TraceStore:
    """Collects samples as the meter drains them, in bounded memory: full buckets are merged in pairs."""

    def __init__(self, step_s: float = 0.01) -> None:
        self._step_s = step_s
        self._origin_s: float | None = None
        # Per counted rail and bucket: sum of the samples and their number.
        self._sums: dict[str, Array] = {}

    def add(self, rails: tuple[Rail, ...], samples: Mapping[str, tuple[Array, Array]]) -> None:
        """Add drained samples: per rail (monotonic seconds, watts). A meter's ``tap``."""
        for rail in (rail.name for rail in rails if rail.counted):
            sums = self._sums.setdefault(rail, np.zeros((2 * POINTS, 2)))
            times_s, watts = samples.get(rail, (np.empty(0), np.empty(0)))
            if len(times_s):
                places = self._places(times_s)
                sums[:, 0] += np.bincount(places, watts, minlength=len(sums))
                sums[:, 1] += np.bincount(places, minlength=len(sums))

    def trace(self, origin_s: float) -> PowerTrace | None:
        """Return the trace with times from a monotonic origin, or None without samples of every rail."""
        if self._origin_s is None:
            return None
        filled = np.logical_and.reduce([sums[:, 1] > 0 for sums in self._sums.values()])
        if not filled.any():
            return None
        power = np.sum([sums[filled, 0] / sums[filled, 1] for sums in self._sums.values()], axis=0)
        times = (np.flatnonzero(filled) + 0.5) * self._step_s + self._origin_s - origin_s
        return PowerTrace(time_s=tuple(map(float, times)), power_w=tuple(map(float, power)))

    def _places(self, times_s: Array) -> Array:
        """Return the bucket of every time; makes the buckets longer until the last one fits."""
        if self._origin_s is None:
            self._origin_s = float(times_s[0])
        while times_s[-1] - self._origin_s >= 2 * POINTS * self._step_s:
            for sums in self._sums.values():
                sums[:POINTS] = sums[0::2] + sums[1::2]
                sums[POINTS:] = 0
            self._step_s *= 2
        places = ((times_s - self._origin_s) / self._step_s).astype(int)
        return np.clip(places, 0, 2 * POINTS - 1)  # type: ignore[no-any-return]
