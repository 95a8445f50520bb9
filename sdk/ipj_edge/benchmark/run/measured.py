"""Raw figures of one bundle in one scenario: all its windows together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from ipj_edge.benchmark.result.latencies import Latencies, joined
from ipj_edge.benchmark.result.schema import WindowRecord
from ipj_edge.benchmark.result.trace import PowerTrace
from ipj_edge.energy import per_inference
from ipj_edge.stats import t_half_width
from ipj_edge.values import EnergyPerInference, Reading

StoppedBy = Literal["confidence", "duration", "interrupt"]


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
        windows: The windows in order; they are the independent unit of all intervals.
        readings: The energy of each window, or the reason why there is none.
        idle: Energy of idle windows, before and after.
        latencies: Latency of every query (`Latencies`), or of an even part of them.
        samples_per_query: Samples of a query.
        warmth: The warm-up.
        stopped_by: ``confidence`` when the wanted error was reached, ``duration`` when time was up first.
        trace: The probe's power samples; None for a probe that counts energy.
        exit_counts: Samples that each exit answered; empty for a model that does not leave early.
    """

    windows: tuple[WindowRecord, ...]
    readings: tuple[Reading, ...]
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
    return per_inference(measured.readings, [window.inferences for window in measured.windows], measured.idle)


def relative_half_width(values: Sequence[float]) -> float:
    """Return the half width of a mean's 95 % interval as a share of it; infinity where there is none."""
    sample = np.asarray(values)
    if sample.size < 2 or sample.mean() <= 0:
        return math.inf
    return t_half_width(float(sample.std(ddof=1)), sample.size) / float(sample.mean())


def steadiness(windows: Sequence[WindowRecord]) -> float:
    """Return the relative 95 % half width of what the bench is after: joules per inference, else CPU time."""
    joules = [window.joules / window.inferences for window in windows if window.joules and window.inferences]
    if len(joules) > 1:
        return relative_half_width(joules)
    return relative_half_width([window.cpu_s / window.inferences for window in windows])


def merged(parts: Sequence[Measured]) -> Measured:
    """Join the rounds of an interleaved measurement, in order, as if one had followed the other."""
    windows: list[WindowRecord] = []
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
        readings=tuple(reading for part in parts for reading in part.readings),
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
