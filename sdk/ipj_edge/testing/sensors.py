"""Sensors that a test drives by hand, and a clock to drive them with. They keep to the protocols of real ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipj_edge.energy import Clocks
from ipj_edge.errors import ProbeUnavailableError
from ipj_edge.protocols import EnergyCounter, PowerProbe, PowerSampler
from ipj_edge.values import Availability, ProbeFacts, ProbeOptions, Rail

Array = NDArray[Any]


class ManualClock:
    """A clock that moves when it is told to, or slept on.

    Attributes:
        now_s: Monotonic seconds.
        suspended_s: Seconds spent in suspend; boot time runs ahead of monotonic time by them.
    """

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s, self.suspended_s = now_s, 0.0

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds

    def suspend(self, seconds: float) -> None:
        """Let the machine sleep: only boot time goes on."""
        self.suspended_s += seconds

    @property
    def clocks(self) -> Clocks:
        """The time sources for a meter."""
        return Clocks(monotonic=lambda: self.now_s, boottime=lambda: self.now_s + self.suspended_s, sleep=self.advance)


class HandCounter:
    """A counter whose joules a test sets.

    Attributes:
        joules: What the next read returns for each rail.
        error: Raised by the next reads while it is set.
        closed: Whether it was closed.
    """

    def __init__(self, facts: ProbeFacts, rails: Sequence[Rail], clock: Callable[[], float]) -> None:
        self.facts, self.rails = facts, tuple(rails)
        self.joules = {rail.name: 0.0 for rail in rails}
        self.error: Exception | None = None
        self.closed = False
        self._clock = clock

    def read(self) -> tuple[float, dict[str, float]]:
        """Return the time and the joules set."""
        if self.error is not None:
            raise self.error
        return self._clock(), dict(self.joules)

    def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True


class HandSampler:
    """A sampler that gives the samples a test has put in.

    Attributes:
        error: Raised by the next drains while it is set.
        fail_once: Raised by the next drain alone, as by a read that failed since the last one.
        running: Whether it was started and not stopped.
    """

    def __init__(self, facts: ProbeFacts, rails: Sequence[Rail]) -> None:
        self.facts, self.rails = facts, tuple(rails)
        self.error: Exception | None = None
        self.fail_once: Exception | None = None
        self.running = False
        self._samples: list[tuple[float, float]] = []

    def put(self, time_s: float, watts: float) -> None:
        """Put in a sample for every rail."""
        self._samples.append((time_s, watts))

    def start(self) -> None:
        """Remember that it was started."""
        self.running = True

    def drain(self) -> dict[str, tuple[Array, Array]]:
        """Return and forget what was put in."""
        failure, self.fail_once = self.fail_once or self.error, None
        if failure is not None:
            raise failure
        samples, self._samples = self._samples, []
        table = np.asarray(samples, dtype=np.float64).reshape(len(samples), 2)
        return {rail.name: (table[:, 0], table[:, 1]) for rail in self.rails}

    def stop(self) -> None:
        """Remember that it was stopped."""
        self.running = False


class HandProbe:
    """A probe that opens a given sensor, or refuses with a reason."""

    def __init__(
        self, sensor: EnergyCounter | PowerSampler | None, *, name: str = "", reason: str = "", fix: str = ""
    ) -> None:
        self.name = name or (sensor.facts.name if sensor is not None else "refused")
        self._sensor, self._reason, self._fix = sensor, reason, fix

    def availability(self, options: ProbeOptions) -> Availability:
        """Say whether there is a sensor."""
        return Availability(available=self._sensor is not None, reason=self._reason, fix=self._fix)

    def open(self, options: ProbeOptions) -> EnergyCounter | PowerSampler:
        """Return the sensor, or raise the reason."""
        if self._sensor is None:
            raise ProbeUnavailableError(self._reason)
        return self._sensor


_: tuple[type[EnergyCounter], type[PowerSampler], type[PowerProbe]] = (HandCounter, HandSampler, HandProbe)
