"""A measurement window over the probes of a meter, and the readings it ends with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import TracebackType

import msgspec

from ipj_edge.energy.clocks import SUSPEND_S, Clocks
from ipj_edge.energy.rules import minimum_window_s, shortfall
from ipj_edge.energy.totals import total
from ipj_edge.energy.tracks import DRIVER_ERRORS, Edge, Span, Track
from ipj_edge.errors import ConfigError, ProbeError
from ipj_edge.values import ProbeFacts, Reading

# Samples may miss a tenth of a window; below that the figure rests on too much that nobody saw.
MIN_COVERAGE = 0.9


class Absent:
    """A probe that gives no figure, and why.

    Attributes:
        probe: Name of the probe.
        reason: Why there is no figure.
        facts: What is known of the probe; None when it could not be opened.
    """

    def __init__(self, probe: str, reason: str, facts: ProbeFacts | None = None) -> None:
        self.probe, self.reason, self.facts = probe, reason, facts

    def reading(self, seconds: float) -> Reading:
        """Return a reading without joules."""
        facts = self.facts
        return Reading(
            joules=None,
            reason=self.reason,
            seconds=seconds,
            provenance=facts.provenance if facts else None,
            boundary=facts.boundary if facts else None,
            probe=self.probe,
            update_interval_s=facts.update_interval_s if facts else 0.0,
        )


class Window:
    """A stretch of work whose energy is wanted; a context manager made by `Meter.window`.

    Attributes:
        name: What it is called.
        inferences: Inferences finished inside it; count them here to be told how many more a window needs.
    """

    def __init__(self, name: str, tracks: Sequence[Track | Absent], clocks: Clocks, error: float) -> None:
        self.name, self.inferences = name, 0
        self._tracks, self._clocks, self._error = tracks, clocks, error
        self._open: list[tuple[Track, Edge] | Absent] = []
        self._readings: tuple[Reading, ...] = ()
        self._start_s = self._suspended_s = 0.0

    def __enter__(self) -> Window:
        self._suspended_s = self._clocks.suspended()
        self._start_s = self._clocks.monotonic()
        self._open = [_begin(track) for track in self._tracks]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ends = [_end(begun) for begun in self._open]
        seconds = self._clocks.monotonic() - self._start_s
        suspended_s = self._clocks.suspended() - self._suspended_s
        if suspended_s > SUSPEND_S:
            reason = f"the machine was suspended for {suspended_s:.1f} s inside the window; measure again"
            ends = [end if isinstance(end, Absent) else Absent(end[0].name, reason, end[0]) for end in ends]
        self._readings = tuple(self._reading(end, seconds) for end in ends)

    @property
    def readings(self) -> tuple[Reading, ...]:
        """The readings, one per probe in the order asked for.

        Raises:
            ConfigError: the window has not ended.
        """
        if not self._readings:
            raise ConfigError("a window has its reading once its block has ended")
        return self._readings

    @property
    def reading(self) -> Reading:
        """The reading of the first probe; see `readings`."""
        return self.readings[0]

    @property
    def total(self) -> Reading:
        """The sum over the probes where their boundaries lie apart, otherwise the reason why there is none."""
        return total(self.readings)

    def _reading(self, end: tuple[ProbeFacts, Span, set[str]] | Absent, seconds: float) -> Reading:
        if isinstance(end, Absent):
            return end.reading(seconds)
        facts, span, counted = end
        return reading_of(facts, span, counted=counted, error=self._error, inferences=self.inferences)


def reading_of(facts: ProbeFacts, span: Span, *, counted: set[str], error: float, inferences: int = 0) -> Reading:
    """Turn what a probe saw into a reading: joules with an interval, or the reason why there are none.

    The interval is the gain error, as a bound, plus twice the standard uncertainty of the rest: one update and
    one step of the figure lost over the two ends (RMS 1/√6 of the bound), the scatter of the samples, and what no
    sample covers.
    """
    joules = math.fsum(value for name, value in span.rails.items() if name in counted)
    refusal = _refusal(facts, span, joules, error, inferences)
    if refusal:
        refused = Absent(facts.name, refusal, facts).reading(span.seconds)
        return msgspec.structs.replace(refused, coverage=span.coverage, update_interval_s=span.update_s)
    power_w = joules / span.seconds
    ends_j2 = ((span.update_s * power_w) ** 2 + facts.quantum_j**2) / 6
    half = 2 * math.sqrt(ends_j2 + span.noise_j**2) + ((facts.accuracy or 0.0) + 1 - span.coverage) * joules
    return Reading(
        joules=joules,
        seconds=span.seconds,
        provenance=facts.provenance,
        boundary=facts.boundary,
        probe=facts.name,
        update_interval_s=span.update_s,
        quantum_j=facts.quantum_j,
        accuracy=facts.accuracy,
        low=max(0.0, joules - half),
        high=joules + half,
        rails=span.rails,
        coverage=span.coverage,
        note=facts.note,
    )


def _refusal(facts: ProbeFacts, span: Span, joules: float, error: float, inferences: int) -> str:
    """Return why a span gives no figure, or an empty text."""
    if not math.isfinite(joules) or span.seconds <= 0:
        return "the window has no length" if span.seconds <= 0 else "the probe gave a figure that is not a number"
    if joules < 0:
        return f"the probe counted {joules:.3g} J, less than nothing; check how the meter is connected"
    if span.coverage < MIN_COVERAGE:
        return (
            f"samples cover only {100 * span.coverage:.0f} % of the window; the sensor or this machine is too "
            "slow, measure again with less load beside the work"
        )
    return _too_short(facts, span, joules, error, inferences)


def _too_short(facts: ProbeFacts, span: Span, joules: float, error: float, inferences: int) -> str:
    rule = ProbeFacts(
        name=facts.name,
        boundary=facts.boundary,
        provenance=facts.provenance,
        update_interval_s=span.update_s if span.is_counter else max(facts.update_interval_s, span.update_s),
        quantum_j=facts.quantum_j,
        resolution_w=facts.resolution_w,
    )
    try:
        needed_s = minimum_window_s(rule, error, joules / span.seconds)
    except ProbeError as refusal:
        return str(refusal)
    if span.seconds < needed_s:
        return (
            f"the window of {span.seconds:.3g} s is too short for ±{100 * error:g} %, which takes "
            f"{needed_s:.3g} s with this probe: {shortfall(needed_s, span.seconds, inferences)}"
        )
    if joules > 0:
        return ""
    if span.is_counter:
        return f"the counter did not move in {span.seconds:.3g} s: less than its step of {facts.quantum_j:.3g} J"
    return "every sample was 0 W: less than the sensor can show, or nothing is connected to it"


def _begin(track: Track | Absent) -> tuple[Track, Edge] | Absent:
    if isinstance(track, Absent):
        return track
    try:
        return track, track.begin()
    except DRIVER_ERRORS as error:
        return Absent(track.facts.name, f"'{track.facts.name}' failed as the window began: {error}", track.facts)


def _end(begun: tuple[Track, Edge] | Absent) -> tuple[ProbeFacts, Span, set[str]] | Absent:
    if isinstance(begun, Absent):
        return begun
    track, edge = begun
    try:
        span = track.end(edge)
    except DRIVER_ERRORS as error:
        return Absent(track.facts.name, f"'{track.facts.name}' failed during the window: {error}", track.facts)
    return track.facts, span, {rail.name for rail in track.rails if rail.counted}
