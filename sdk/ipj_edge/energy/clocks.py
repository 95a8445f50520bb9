"""The clocks a window is timed with. The wall clock is none of them: it steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

# A reader preempted between two clocks sees them a few milliseconds apart; a suspend lasts longer than this.
SUSPEND_S = 0.1


def boottime() -> float:
    """Return seconds since boot, suspends included; equal to `time.monotonic` where the system has no such
    clock.
    """
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


@dataclass(frozen=True)
class Clocks:
    """The time sources of a meter.

    Attributes:
        monotonic: Seconds that never step and stand still while the machine is suspended.
        boottime: Seconds that go on during a suspend.
        sleep: Waits for some seconds.
    """

    monotonic: Callable[[], float] = time.monotonic
    boottime: Callable[[], float] = boottime
    sleep: Callable[[float], None] = time.sleep

    def suspended(self) -> float:
        """Return the seconds spent in suspend since boot; only differences mean something."""
        best_width, best = float("inf"), 0.0
        for _ in range(3):
            before = self.monotonic()
            boot = self.boottime()
            after = self.monotonic()
            if after - before < best_width:
                best_width, best = after - before, boot - (before + after) / 2
        return best
