"""From a meter's own time to this machine's monotonic clock.

A meter samples evenly; its bytes reach us in bursts, late by a varying amount and never early. So the time of a
sample is never taken from the arrival of its bytes: the earliest arrivals of many stretches give a straight line
(rate by Theil-Sen, offset by the lowest residual), and that line gives all times.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

BUCKET_S = 0.5
MAX_BUCKETS = 240
OFFSET_BUCKETS = 60
MIN_BUCKETS_FOR_RATE = 8
MIN_SPAN_FOR_DRIFT_S = 10.0


class SampleClock:
    """Fits host time = offset + (1 + drift) · device time from arrivals."""

    def __init__(self) -> None:
        self._device_s: list[float] = []
        self._late_s: list[float] = []
        self._width_s = BUCKET_S
        self._bucket = -1
        self._drift = 0.0
        self._offset_s: float | None = None

    def observe(self, device_s: float, host_s: float) -> None:
        """Note that all samples up to device time had arrived by host time."""
        late_s = host_s - device_s
        bucket = int(device_s // self._width_s)
        if bucket != self._bucket or not self._device_s:
            self._bucket = bucket
            self._refit()
            self._device_s.append(device_s)
            self._late_s.append(late_s)
        elif late_s - self._drift * device_s < self._late_s[-1] - self._drift * self._device_s[-1]:
            self._device_s[-1], self._late_s[-1] = device_s, late_s
        else:
            return
        self._offset_s = None

    def host_times(self, device_s: Array) -> Array:
        """Return the host times of device times, in monotonic seconds."""
        return self._offset() + device_s * (1.0 + self._drift)

    @property
    def drift(self) -> float | None:
        """Host seconds per device second, less one; None until ten seconds have been seen."""
        if not self._device_s or self._device_s[-1] - self._device_s[0] < MIN_SPAN_FOR_DRIFT_S:
            return None
        return self._drift

    def _offset(self) -> float:
        if not self._device_s:
            raise ValueError("no arrival was observed")
        if self._offset_s is None:
            recent = slice(-OFFSET_BUCKETS, None)
            device_s, late_s = np.array(self._device_s[recent]), np.array(self._late_s[recent])
            self._offset_s = float(np.min(late_s - self._drift * device_s))
        return self._offset_s

    def _refit(self) -> None:
        """Fit the rate over the finished buckets; called when a new one begins, so twice a second at most."""
        if len(self._device_s) >= MAX_BUCKETS:
            self._halve()
        if len(self._device_s) >= MIN_BUCKETS_FOR_RATE:
            self._drift = _theil_sen(np.array(self._device_s), np.array(self._late_s))

    def _halve(self) -> None:
        """Keep the earlier arrival of each two buckets, so that hours fit in the same memory."""
        level = np.array(self._late_s) - self._drift * np.array(self._device_s)
        keep = [i if level[i] <= level[i + 1] else i + 1 for i in range(0, len(level) - 1, 2)]
        self._device_s = [self._device_s[i] for i in keep]
        self._late_s = [self._late_s[i] for i in keep]
        self._width_s *= 2


class Timeline:
    """Host times for consecutive drains: always increasing, though the fit moves between them.

    A new fit is approached gradually: the times of one drain run straight from the last time given to where the
    fit now puts the newest sample.
    """

    def __init__(self, clock: SampleClock) -> None:
        self._clock = clock
        self._last: tuple[float, float] | None = None

    def host_times(self, device_s: Array) -> Array:
        """Return host times of increasing device times, none before a time returned earlier."""
        if not len(device_s):
            return np.empty(0)
        host_s = self._clock.host_times(device_s) if self._last is None else self._continued(device_s, *self._last)
        self._last = (float(device_s[-1]), float(host_s[-1]))
        return host_s

    def _continued(self, device_s: Array, last_device_s: float, last_host_s: float) -> Array:
        span_s = float(device_s[-1]) - last_device_s
        wanted_s = float(self._clock.host_times(device_s[-1:])[0]) - last_host_s
        # A correction may halve or double a drain's pace; what is left over is caught up in the next ones.
        pace = min(max(wanted_s / span_s, 0.5), 2.0) if span_s > 0 else 1.0
        return last_host_s + (device_s - last_device_s) * pace


def _theil_sen(x: Array, y: Array) -> float:
    """Return the median of the slopes between all pairs of points: a few late points do not move it."""
    i, j = np.triu_indices(len(x), k=1)
    span = x[j] - x[i]
    apart = span > 0
    return float(np.median((y[j] - y[i])[apart] / span[apart])) if apart.any() else 0.0
