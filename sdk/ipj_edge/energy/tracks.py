"""One probe while a meter is open: a counter read at a window's edges, or a sampler integrated between them."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import msgspec
from numpy.typing import NDArray

from ipj_edge.energy.clocks import Clocks
from ipj_edge.energy.running import Mark, RunningEnergy, Tally
from ipj_edge.errors import ProbeError, ProbeReadError
from ipj_edge.protocols import EnergyCounter, PowerSampler
from ipj_edge.values import ProbeFacts, Rail

# Sees the rails and the samples of every drain; called under the track's lock, so it has to be quick.
Tap = Callable[[tuple[Rail, ...], Mapping[str, tuple[NDArray[Any], NDArray[Any]]]], None]

# What a driver may raise while it is read; anything else is a bug of the driver and passes.
DRIVER_ERRORS = (ProbeError, OSError)


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """What a probe saw between two edges.

    Attributes:
        seconds: Time between the edges, as the probe saw it.
        rails: Joules of every rail.
        update_s: Largest time lost at the two edges together.
        coverage: Share of the time that samples cover.
        noise_j: Standard uncertainty of the joules from the scatter of the samples; 0 for a counter.
        is_counter: Whether a counter gave it.
    """

    seconds: float
    rails: dict[str, float]
    update_s: float
    coverage: float = 1.0
    noise_j: float = 0.0
    is_counter: bool = True


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """The start of a window on one probe.

    Attributes:
        time_s: Monotonic seconds.
        failures: Failures of the probe so far; one more before the end makes the window invalid.
        joules: Counter: joules of every rail.
        marks: Sampler: the mark on every rail.
        blur_s: Counter with aligned edges: how finely the edge was found; None when it was not aligned.
    """

    time_s: float
    failures: int
    joules: dict[str, float] = {}
    marks: dict[str, Mark] = {}
    blur_s: float | None = None


class Track(Protocol):
    """A probe while a meter is open. Windows may nest and overlap."""

    facts: ProbeFacts
    rails: tuple[Rail, ...]
    pump_interval_s: float | None

    def begin(self) -> Edge:
        """Begin a window. Raises what the driver raises."""

    def end(self, edge: Edge) -> Span:
        """End a window. Raises what the driver raises, or raised since it began."""

    def pump(self) -> None:
        """Read between windows, so that no wrap and no full buffer is missed."""

    def close(self) -> None:
        """Release the probe."""


class CounterTrack:
    """A cumulative counter: read at the edges, and at a slow heartbeat so that no wrap is missed."""

    def __init__(self, counter: EnergyCounter, clocks: Clocks, *, align: bool = False) -> None:
        self.facts, self.rails = counter.facts, counter.rails
        self.pump_interval_s = counter.facts.heartbeat_s
        self._counter, self._clocks, self._align = counter, clocks, align
        self._lock = threading.Lock()
        self._failures: list[str] = []
        self._closed = False

    def begin(self) -> Edge:
        """Read the counter; with aligned edges, wait for its next step first."""
        with self._lock:
            _raise_if(self._closed)
            time_s, joules, blur_s = self._read_edge()
            return Edge(time_s=time_s, failures=len(self._failures), joules=joules, blur_s=blur_s)

    def end(self, edge: Edge) -> Span:
        """Read the counter again.

        With aligned edges the counter is read at the step after the end, and the tail up to it is scaled off:
        E = ΔE·(t_end − t_0)/(t_step − t_0).
        """
        with self._lock:
            _raise_if(self._closed)
            asked_s = self._clocks.monotonic()
            time_s, joules, blur_s = self._read_edge()
            _raise_since(self._failures, edge.failures)
            # Integrating meters show fewer digits as their figure grows.
            self.facts = msgspec.structs.replace(self.facts, quantum_j=self._counter.facts.quantum_j)
        aligned = edge.blur_s is not None and blur_s is not None
        seconds = asked_s - edge.time_s if aligned else time_s - edge.time_s
        share = seconds / (time_s - edge.time_s) if aligned and time_s > edge.time_s else 1.0
        rails = {name: (value - edge.joules[name]) * share for name, value in joules.items()}
        update_s = self.facts.update_interval_s
        if edge.blur_s is not None and blur_s is not None:
            # A tenth of the interval stays for the sensor's own jitter and a tail that draws another power.
            update_s = min(update_s, edge.blur_s + blur_s + update_s / 10)
        return Span(seconds=seconds, rails=rails, update_s=update_s)

    def pump(self) -> None:
        """Read the counter; a failure makes every open window invalid."""
        with self._lock, suppress(*DRIVER_ERRORS):
            self._read()

    def close(self) -> None:
        """Release the counter."""
        with self._lock:
            self._closed = True
            self._counter.close()

    def _read(self) -> tuple[float, dict[str, float]]:
        """Read the counter; what a failed read lost is missing from every open window, not from the one that asked."""
        try:
            return self._counter.read()
        except DRIVER_ERRORS as error:
            self._failures.append(str(error))
            raise

    def _read_edge(self) -> tuple[float, dict[str, float], float | None]:
        time_s, joules = self._read()
        if not self._align:
            return time_s, joules, None
        first, before_s = joules, time_s
        while time_s - before_s < 5 * self.facts.update_interval_s:
            last_s = time_s
            time_s, joules = self._read()
            if joules != first:
                return time_s, joules, time_s - last_s
        return time_s, joules, None


class SamplerTrack:
    """A sampled sensor: every sample goes into a running integral, which windows read at their edges."""

    def __init__(self, sampler: PowerSampler, clocks: Clocks, tap: Tap | None = None) -> None:
        self._tap = tap
        self.facts, self.rails = sampler.facts, sampler.rails
        self.pump_interval_s: float | None = max(1.0, sampler.facts.update_interval_s)
        self._sampler, self._clocks = sampler, clocks
        gap_limit_s = max(3 * sampler.facts.update_interval_s, 0.05)
        self._running = {rail.name: RunningEnergy(gap_limit_s) for rail in sampler.rails}
        self._lock = threading.Lock()
        self._failures: list[str] = []
        self._closed = False
        try:
            sampler.start()
        except DRIVER_ERRORS:
            sampler.stop()  # it holds a port, which the next program may want
            raise

    def begin(self) -> Edge:
        """Mark the moment on every rail; what failed before it is none of this window's."""
        with self._lock:
            _raise_if(self._closed)
            self._drain()
            now_s = self._clocks.monotonic()
            marks = {name: running.mark(now_s) for name, running in self._running.items()}
            return Edge(time_s=now_s, failures=len(self._failures), marks=marks)

    def end(self, edge: Edge) -> Span:
        """Integrate from the edge to now; waits a little for the sample that closes the window."""
        with self._lock:
            _raise_if(self._closed)
            now_s = self._clocks.monotonic()
            ends = {name: running.mark(now_s) for name, running in self._running.items()}
            self._drain()
            self._await_closing_sample(ends)
            _raise_since(self._failures, edge.failures)
            tallies = {
                name: (running.settle(edge.marks[name]), running.settle(ends[name]))
                for name, running in self._running.items()
            }
        return self._span(now_s - edge.time_s, tallies)

    def pump(self) -> None:
        """Take the samples so far; a failure makes every open window invalid."""
        with self._lock:
            self._drain()

    def close(self) -> None:
        """End sampling."""
        with self._lock:
            self._closed = True
            self._sampler.stop()

    def _drain(self) -> None:
        try:
            samples = self._sampler.drain()
            for name, (times_s, watts) in samples.items():
                self._running[name].advance(times_s, watts)
            if self._tap is not None:
                self._tap(self.rails, samples)
        except DRIVER_ERRORS as error:
            self._failures.append(str(error))

    def _await_closing_sample(self, ends: dict[str, Mark]) -> None:
        """Wait for fast sensors only: a slow one would add idle time to every window for little."""
        step_s = self.facts.update_interval_s
        if step_s > 0.025:
            return
        for _ in range(5):
            if self._failures or all(self._running[name].passed(mark) for name, mark in ends.items()):
                return
            self._clocks.sleep(max(step_s, 0.01))
            self._drain()

    def _span(self, seconds: float, tallies: dict[str, tuple[Tally, Tally]]) -> Span:
        counted = {rail.name for rail in self.rails if rail.counted}
        gap_s = max(end.gap_s - start.gap_s for start, end in tallies.values())
        samples = min(end.samples - start.samples for start, end in tallies.values())
        noise_w = sum(_mean_error(start, end) for name, (start, end) in tallies.items() if name in counted)
        return Span(
            seconds=seconds,
            rails={name: end.joules - start.joules for name, (start, end) in tallies.items()},
            # A sensor that was asked less often than it updates is as slow as it was asked.
            update_s=max(self.facts.update_interval_s, seconds / samples if samples else seconds),
            coverage=1 - min(1.0, gap_s / seconds) if seconds > 0 else 0.0,
            noise_j=noise_w * seconds,
            is_counter=False,
        )


def _mean_error(start: Tally, end: Tally) -> float:
    """Return the standard error of the mean power, in watts, from the scatter of the samples in between."""
    n = end.samples - start.samples
    if n < 2:
        return 0.0
    mean = (end.sum_w - start.sum_w) / n
    variance = max(0.0, (end.sum_w2 - start.sum_w2) / n - mean * mean) * n / (n - 1)
    return math.sqrt(variance / n)


def _raise_if(closed: bool) -> None:
    if closed:
        raise ProbeReadError("the meter was closed")


def _raise_since(failures: list[str], seen: int) -> None:
    if len(failures) > seen:
        raise ProbeReadError(failures[seen])
