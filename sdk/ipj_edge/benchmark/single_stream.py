"""The single-stream scenario, as MLPerf defines it: one sample a query, the next query when the last is answered."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from statistics import median
from time import perf_counter

import msgspec
import numpy as np

from ipj_edge.energy import Meter
from ipj_edge.model import Model
from ipj_edge.protocols import Array
from ipj_edge.values import Reading

_WARM_UP_S = 2.0
_STABLE = 0.05
_ROUND = 20

Feeds = Sequence[dict[str, Array]]


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Raw figures of a scenario.

    Attributes:
        latencies_s: Seconds of every inference, float64 of shape (inferences,).
        readings: Energy of every window.
        inferences: Inferences finished inside every window.
        idle: Energy of idle windows before and after.
        cpu_s: CPU seconds of this process over all windows.
        wall_s: Wall seconds of all windows.
    """

    latencies_s: Array
    readings: tuple[Reading, ...]
    inferences: tuple[int, ...]
    idle: tuple[Reading, ...]
    cpu_s: float
    wall_s: float


def warm_up(model: Model, feeds: Feeds) -> None:
    """Run until the median of a round moves less than 5 % from the round before, or for two seconds."""
    end, before = perf_counter() + _WARM_UP_S, float("inf")
    while perf_counter() < end:
        now = median(_timed(model, feeds[i % len(feeds)]) for i in range(_ROUND))
        if abs(now - before) <= _STABLE * before:
            return
        before = now


def single_stream(model: Model, feeds: Feeds, meter: Meter, *, windows: int, window_s: float, idle: bool) -> Measured:
    """Run independent windows back to back and read energy, CPU time and every latency in the same run.

    Args:
        model: A warm model.
        feeds: Inputs of one sample each; rotated.
        meter: An open meter; its first probe is read.
        windows: Number of windows.
        window_s: Least seconds of a window.
        idle: Measure idle windows of the same length before and after.
    """
    latencies = array("d")
    readings, counts = [], []
    idles = [_idle(meter, window_s)] if idle else []
    cpu_s = wall_s = 0.0
    for _ in range(windows):
        cpu_start, start = time.process_time(), perf_counter()
        with meter.window("inference") as window:
            counts.append(_run_for(model, feeds, window_s, latencies))
        cpu_s, wall_s = cpu_s + time.process_time() - cpu_start, wall_s + perf_counter() - start
        readings.append(window.reading)
    idles += [_idle(meter, window_s)] if idle else []
    return Measured(
        latencies_s=np.array(latencies),
        readings=tuple(readings),
        inferences=tuple(counts),
        idle=tuple(idles),
        cpu_s=cpu_s,
        wall_s=wall_s,
    )


def _idle(meter: Meter, seconds: float) -> Reading:
    with meter.window("idle") as window:
        time.sleep(seconds)
    return window.reading


def _timed(model: Model, feed: dict[str, Array]) -> float:
    start = perf_counter()
    model.run(feed)
    return perf_counter() - start


def _run_for(model: Model, feeds: Feeds, seconds: float, latencies: array[float]) -> int:
    run, clock, add, size = model.run, perf_counter, latencies.append, len(feeds)
    count, end = 0, perf_counter() + seconds
    while True:
        feed = feeds[count % size]
        start = clock()
        run(feed)
        stop = clock()
        add(stop - start)
        count += 1
        if stop >= end:
            return count
