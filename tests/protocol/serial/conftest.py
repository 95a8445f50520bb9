"""What the tests of serial meters share."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from ipj_edge.protocols import PowerSampler


def energy_over(sampler: PowerSampler, seconds: float) -> tuple[float, float]:
    """Return (joules, seconds) of a window, its edges cut from the samples around them.

    Samples of the window's end arrive after it, so draining goes on until they have.
    """
    sampler.start()
    try:
        time.sleep(0.15)
        begin_s = time.monotonic()
        times: list[np.ndarray] = []
        watts: list[np.ndarray] = []
        while not times or not len(times[-1]) or times[-1][-1] < begin_s + seconds:
            assert time.monotonic() < begin_s + seconds + 60
            time.sleep(0.05)
            ((time_s, power_w),) = sampler.drain().values()
            if len(time_s):
                times.append(time_s)
                watts.append(power_w)
    finally:
        sampler.stop()
    time_s, power_w = np.concatenate(times), np.concatenate(watts)
    assert (np.diff(time_s) > 0).all()
    inside = (time_s > begin_s) & (time_s < begin_s + seconds)
    grid = np.concatenate(([begin_s], time_s[inside], [begin_s + seconds]))
    return float(np.trapezoid(np.interp(grid, time_s, power_w), grid)), seconds


def read_until_it_fails(read: Callable[[], object]) -> None:
    """Read again and again until it raises, however late a busy machine lets the fault happen; a minute at most."""
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        read()
        time.sleep(0.02)


@pytest.fixture
def until_it_fails() -> Callable[[Callable[[], object]], None]:
    """Read until an error comes."""
    return read_until_it_fails


@pytest.fixture
def energy_of_window() -> Callable[[PowerSampler, float], tuple[float, float]]:
    """Measure a window with a sampler: (joules, seconds)."""
    return energy_over
