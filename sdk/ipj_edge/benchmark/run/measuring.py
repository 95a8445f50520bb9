"""Measure one loaded model in one scenario: warm up, then windows of energy, CPU time and every latency at once."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from time import perf_counter

import msgspec

from ipj_edge.benchmark.result.latencies import Latencies
from ipj_edge.benchmark.result.schema import WindowRecord
from ipj_edge.benchmark.run.conditions import look
from ipj_edge.benchmark.run.issuing import Issued, Run, back_to_back, paced
from ipj_edge.benchmark.run.measured import Measured, StoppedBy, Warmth, steadiness
from ipj_edge.benchmark.run.queries import Query
from ipj_edge.energy import Meter
from ipj_edge.values import Reading

_WARM_UP_S = 2.0
_STABLE = 0.05
_ROUND = 20
_ROUND_S = 0.3
# A sensor this slow may sample in step with the windows: begin each at another phase (arXiv 2312.02741).
_SLOW_SENSOR_S = 0.05
_WINDOW_SAMPLES = 1 << 15


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How long to measure.

    Attributes:
        windows: Fewest windows.
        window_s: Least seconds of a window.
        max_s: Once so many seconds of windows are measured, stop whatever the error.
        error: Stop when the 95 % interval of the energy, or else of the CPU time, is within ± this share.
        every_s: Pace of the queries; None for back to back.
        idle: Measure idle windows before and after.
    """

    windows: int
    window_s: float
    max_s: float
    error: float
    every_s: float | None = None
    idle: bool = False


def warm_up(run: Run, queries: Sequence[Query]) -> Warmth:
    """Run until the median of a round moves less than 5 % from the round before, or for two seconds.

    To be called for every shape: engines allocate and compile per shape.
    """
    begin = perf_counter()
    end, count = begin + _WARM_UP_S, 0
    before: float | None = None
    while True:
        now, done = _round(run, queries, count)
        count += done
        settled = before is not None and abs(now - before) <= _STABLE * before
        if settled or perf_counter() >= end:
            return Warmth(seconds=perf_counter() - begin, queries=count, settled=settled)
        before = now


def measure(
    run: Run,
    queries: Sequence[Query],
    meter: Meter,
    plan: Plan,
    *,
    samples_per_query: int = 1,
    warmth: Warmth,
    on_window: Callable[[int], None] | None = None,
) -> Measured:
    """Run independent windows back to back; stop by confidence or by duration.

    Args:
        run: Runs one query.
        queries: Queries to rotate through.
        meter: An open meter; its first probe is read.
        plan: How long to measure.
        samples_per_query: Samples of a query.
        warmth: How the warm-up went.
        on_window: Called with the number of windows measured, between windows.
    """
    series = _Series(run, queries, meter, plan, samples_per_query)
    idle = [_idle(meter, plan.window_s)] if plan.idle else []
    stopped_by: StoppedBy | None = None
    with _no_garbage_collection():
        while stopped_by is None:
            series.window()
            if on_window is not None:
                on_window(len(series.windows))
            stopped_by = _reason_to_stop(series.windows, plan)
    idle += [_idle(meter, plan.window_s)] if plan.idle else []
    return Measured(
        windows=tuple(series.windows),
        readings=tuple(series.readings),
        idle=tuple(idle),
        latencies=series.latencies,
        samples_per_query=samples_per_query,
        warmth=warmth,
        stopped_by=stopped_by,
    )


class _Series:
    """The windows of one measurement.

    Attributes:
        windows: Those that have ended.
        readings: Their energy.
        latencies: Latencies over all of them.
    """

    def __init__(self, run: Run, queries: Sequence[Query], meter: Meter, plan: Plan, samples_per_query: int) -> None:
        self.windows: list[WindowRecord] = []
        self.readings: list[Reading] = []
        self.latencies = Latencies()
        self._run, self._queries, self._meter, self._plan = run, queries, meter, plan
        self._samples_per_query = samples_per_query
        self._origin_s = time.monotonic()
        self._phase = random.Random(0)

    def window(self) -> None:
        """Measure one more window."""
        self._shift_phase()
        own = Latencies(_WINDOW_SAMPLES)
        before, start_s = look(), time.monotonic() - self._origin_s
        with self._meter.window("inference") as window:
            cpu_s, start = time.process_time(), perf_counter()
            issued = self._issue(self._plan.window_s, (own, self.latencies))
            cpu_s, seconds = time.process_time() - cpu_s, perf_counter() - start
            window.inferences = issued.queries * self._samples_per_query
        after = look()
        waited = None if None in (before.waited_s, after.waited_s) else _minus(after.waited_s, before.waited_s)
        p50, p99 = own.percentiles((50, 99))
        self.readings.append(window.reading)
        self.windows.append(
            WindowRecord(
                start_s=start_s,
                seconds=seconds,
                queries=issued.queries,
                inferences=window.inferences,
                missed=issued.missed,
                busy_s=own.total_s,
                cpu_s=cpu_s,
                waited_s=waited,
                p50_s=p50,
                p99_s=p99,
                joules=window.reading.joules,
                reason=window.reading.reason,
                frequency_hz=after.frequency_hz,
                temperature_celsius=after.temperature_celsius,
            )
        )

    def _issue(self, seconds: float, into: Sequence[Latencies]) -> Issued:
        if self._plan.every_s is None:
            return back_to_back(self._run, self._queries, seconds, into)
        return paced(self._run, self._queries, seconds, into, self._plan.every_s)

    def _shift_phase(self) -> None:
        """Let a slow sensor see each window from another phase; the load goes on, so that clocks stay up."""
        facts = self._meter.facts[0]
        if facts is not None and facts.update_interval_s >= _SLOW_SENSOR_S and self.windows:
            self._issue(self._phase.uniform(0, min(facts.update_interval_s, 1.0)), ())


def _minus(later: float | None, earlier: float | None) -> float:
    # A thread that ended takes its count along: the sum may fall.
    return max(0.0, (later or 0.0) - (earlier or 0.0))


def _reason_to_stop(windows: Sequence[WindowRecord], plan: Plan) -> StoppedBy | None:
    if len(windows) < plan.windows:
        return None
    if steadiness(windows) <= plan.error:
        return "confidence"
    return "duration" if sum(window.seconds for window in windows) >= plan.max_s else None


def _round(run: Run, queries: Sequence[Query], offset: int) -> tuple[float, int]:
    """Return the median seconds of a round of at most 20 queries or 0.3 s, and how many they were."""
    end, taken = perf_counter() + _ROUND_S, list[float]()
    while len(taken) < _ROUND and (not taken or perf_counter() < end):
        query = queries[(offset + len(taken)) % len(queries)]
        start = perf_counter()
        run(query)
        taken.append(perf_counter() - start)
    return median(taken), len(taken)


def _idle(meter: Meter, seconds: float) -> Reading:
    with meter.window("idle") as window:
        time.sleep(seconds)
    return window.reading


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Keep the cycle collector out of the latencies; a window leaves no cycles behind."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
