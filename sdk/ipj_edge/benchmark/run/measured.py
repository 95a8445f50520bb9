"""Raw figures of one bundle in one scenario: what a window saw, and all windows together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from ipj_edge.benchmark.result.latencies import Latencies, joined
from ipj_edge.benchmark.result.trace import PowerTrace
from ipj_edge.energy import per_inference
from ipj_edge.stats import t_half_width
from ipj_edge.values import EnergyPerInference, Reading

StoppedBy = Literal["confidence", "duration", "interrupt"]


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """One window of work; windows are the independent unit of all intervals.

    Attributes:
        start_s: Its beginning, in seconds from that of the measurement, idle time before included.
        seconds: Its length in wall time.
        queries: Queries answered in it.
        inferences: Samples answered in it.
        missed: Slots of a pace that were missed.
        busy_s: Sum of the latencies.
        cpu_s: CPU seconds (user + system) of this process, all threads.
        waited_s: Seconds its threads were ready and had no CPU; None where the system does not tell.
        p50_s: Median latency of a query.
        p99_s: 99th percentile of it.
        reading: Its energy, or the reason why there is none.
        frequency_hz: Clock of the CPUs at its end; None where the system does not show it.
        temperature_celsius: Temperature of the processor at its end; likewise.
    """

    start_s: float
    seconds: float
    queries: int
    inferences: int
    missed: int = 0
    busy_s: float
    cpu_s: float
    waited_s: float | None = None
    p50_s: float
    p99_s: float
    reading: Reading
    frequency_hz: float | None = None
    temperature_celsius: float | None = None


class Warmth(msgspec.Struct, frozen=True, kw_only=True):
    """How the warm-up went.

    Attributes:
        seconds: How long it took.
        queries: Queries it took.
        settled: Whether latencies settled before its time was up.
    """

    seconds: float
    queries: int
    settled: bool


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """All windows of one bundle in one scenario.

    Attributes:
        windows: The windows in order.
        idle: Energy of idle windows, before and after.
        latencies: Latency of every query (`Latencies`), or of an even part of them.
        samples_per_query: Samples of a query.
        warmth: The warm-up.
        stopped_by: ``confidence`` when the wanted error was reached, ``duration`` when time was up first.
        trace: The probe's power samples; None for a probe that counts energy.
        exit_counts: Samples that each exit answered; empty for a model that does not leave early.
    """

    windows: tuple[Window, ...]
    idle: tuple[Reading, ...]
    latencies: Latencies
    samples_per_query: int
    warmth: Warmth
    stopped_by: StoppedBy
    trace: PowerTrace | None = None
    exit_counts: tuple[int, ...] = ()

    def total(self, name: str) -> float:
        """Return the sum of a field over the windows."""
        return math.fsum(getattr(window, name) for window in self.windows)


def energy_of(measured: Measured) -> EnergyPerInference:
    """Return joules per inference over the windows."""
    windows = measured.windows
    return per_inference(
        [window.reading for window in windows], [window.inferences for window in windows], measured.idle
    )


def relative_half_width(values: Sequence[float]) -> float:
    """Return the half width of a mean's 95 % interval as a share of it; infinity where there is none."""
    sample = np.asarray(values)
    if sample.size < 2 or sample.mean() <= 0:
        return math.inf
    return t_half_width(float(sample.std(ddof=1)), sample.size) / float(sample.mean())


def steadiness(windows: Sequence[Window]) -> float:
    """Return the relative 95 % half width of what the bench is after: joules per inference, else CPU time."""
    joules = [
        window.reading.joules / window.inferences for window in windows if window.reading.joules and window.inferences
    ]
    if len(joules) > 1:
        return relative_half_width(joules)
    return relative_half_width([window.cpu_s / window.inferences for window in windows])


def merged(parts: Sequence[Measured]) -> Measured:
    """Join the rounds of an interleaved measurement, in order, as if one had followed the other."""
    windows: list[Window] = []
    times: list[float] = []
    powers: list[float] = []
    for part in parts:
        # A trace goes on after the last window, through the idle time.
        offset_s = max([one.start_s + one.seconds for one in windows[-1:]] + times[-1:], default=0.0)
        windows += [msgspec.structs.replace(one, start_s=one.start_s + offset_s) for one in part.windows]
        if part.trace is not None:
            times += [time_s + offset_s for time_s in part.trace.time_s]
            powers += part.trace.power_w
    return Measured(
        windows=tuple(windows),
        idle=tuple(reading for part in parts for reading in part.idle),
        latencies=joined([part.latencies for part in parts]),
        samples_per_query=parts[0].samples_per_query,
        warmth=Warmth(
            seconds=math.fsum(part.warmth.seconds for part in parts),
            queries=sum(part.warmth.queries for part in parts),
            settled=all(part.warmth.settled for part in parts),
        ),
        stopped_by=parts[-1].stopped_by,
        exit_counts=tuple(map(sum, zip(*(part.exit_counts for part in parts), strict=True))),
        trace=PowerTrace(time_s=tuple(times), power_w=tuple(powers)) if times else None,
    )
