"""The energy of one rail as a running integral of its power samples. It keeps no samples, only marked times."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ipj_edge.errors import ProbeReadError

Array = NDArray[Any]


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """Sums up to one moment; only differences between two tallies mean something.

    Attributes:
        joules: Energy, trapezoid rule over the true time steps.
        gap_s: Seconds inside steps longer than the gap limit.
        samples: Samples taken.
        sum_w: Sum of the samples, in watts.
        sum_w2: Sum of their squares.
    """

    joules: float
    gap_s: float
    samples: int
    sum_w: float
    sum_w2: float


class Mark:
    """A moment for which the tally is wanted; settled once samples have passed it.

    Attributes:
        time_s: The moment, monotonic seconds.
        tally: The sums up to it, or None while it waits for samples.
    """

    def __init__(self, time_s: float) -> None:
        self.time_s = time_s
        self.tally: Tally | None = None


class RunningEnergy:
    """Integrates one rail's samples as they come."""

    def __init__(self, gap_limit_s: float) -> None:
        self._gap_limit_s = gap_limit_s
        self._times: Array = np.empty(0)
        self._watts: Array = np.empty(0)
        self._before = Tally(joules=0.0, gap_s=0.0, samples=0, sum_w=0.0, sum_w2=0.0)
        self._waiting: list[Mark] = []

    def mark(self, time_s: float) -> Mark:
        """Ask for the tally at a moment, usually now; samples that pass it settle it."""
        mark = Mark(time_s)
        self._waiting.append(mark)
        self._settle_passed()
        return mark

    def advance(self, times_s: Array, watts: Array) -> None:
        """Add samples in order of time.

        Args:
            times_s: Monotonic seconds, shape (n,).
            watts: Power, shape (n,).

        Raises:
            ProbeReadError: a sample is not finite, or times run backwards.
        """
        if times_s.size == 0:
            return
        if not (np.isfinite(watts).all() and np.isfinite(times_s).all()):
            raise ProbeReadError("a sample is not a number")
        self._fold()
        times, power = np.concatenate([self._times, times_s]), np.concatenate([self._watts, watts])
        if (np.diff(times) < 0).any():
            raise ProbeReadError("the time stamps of the samples run backwards")
        self._times, self._watts = times, power
        self._settle_passed()

    def passed(self, mark: Mark) -> bool:
        """Say whether samples have passed a mark."""
        return mark.tally is not None

    def settle(self, mark: Mark) -> Tally:
        """Return the tally at a mark, holding the last power where no sample has passed it yet.

        Raises:
            ProbeReadError: there has been no sample at all.
        """
        if mark.tally is None:
            if self._times.size == 0:
                raise ProbeReadError("it gave no sample")
            mark.tally = self._held(mark.time_s)
            self._waiting.remove(mark)
        return mark.tally

    def _fold(self) -> None:
        """Fold all samples but the last into the sums before it."""
        if self._times.size > 1:
            self._before = self._at_sample(self._times.size - 1, including=False)
            self._times, self._watts = self._times[-1:], self._watts[-1:]

    def _at_sample(self, index: int, *, including: bool) -> Tally:
        """Return the sums up to a kept sample, counting it or not."""
        steps, before = np.diff(self._times[: index + 1]), self._before
        joules = float(steps @ (self._watts[:index] + self._watts[1 : index + 1])) / 2
        counted = self._watts[: index + including]
        return Tally(
            joules=before.joules + joules,
            gap_s=before.gap_s + float(steps[steps > self._gap_limit_s].sum()),
            samples=before.samples + counted.size,
            sum_w=before.sum_w + float(counted.sum()),
            sum_w2=before.sum_w2 + float(counted @ counted),
        )

    def _settle_passed(self) -> None:
        if self._times.size == 0:
            return
        last_s = self._times[-1]
        for mark in [mark for mark in self._waiting if mark.time_s <= last_s]:
            mark.tally = self._inside(mark.time_s)
            self._waiting.remove(mark)

    def _inside(self, time_s: float) -> Tally:
        index = int(np.searchsorted(self._times, time_s, side="right")) - 1
        if index < 0:
            return self._shifted(self._at_sample(0, including=False), time_s - self._times[0], self._watts[0])
        tally = self._at_sample(index, including=True)
        if index == self._times.size - 1:
            return tally
        step = float(self._times[index + 1] - self._times[index])
        part = time_s - float(self._times[index])
        here = float(self._watts[index])
        there = here + (float(self._watts[index + 1]) - here) * part / step
        return self._shifted(tally, part, (here + there) / 2, step)

    def _held(self, time_s: float) -> Tally:
        tally = self._at_sample(self._times.size - 1, including=True)
        return self._shifted(tally, time_s - float(self._times[-1]), float(self._watts[-1]))

    def _shifted(self, tally: Tally, part_s: float, power_w: float, step_s: float | None = None) -> Tally:
        """Move a tally by a piece of constant mean power; the piece is a gap if the step it lies in is one."""
        is_gap = abs(part_s if step_s is None else step_s) > self._gap_limit_s
        return msgspec.structs.replace(
            tally,
            joules=tally.joules + float(part_s) * float(power_w),
            gap_s=tally.gap_s + (float(part_s) if is_gap else 0.0),
        )
