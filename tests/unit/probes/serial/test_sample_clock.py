"""From a meter's time to ours: late and bursty arrivals must not show in the samples' times."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipj_edge_probes.serial.sample_clock import SampleClock, Timeline


def arrivals(clock: SampleClock, seconds: float, *, rate: float = 1.0, offset_s: float = 100.0, seed: int = 1) -> None:
    """Feed arrivals each 10 ms that are up to 16 ms late, and now and then 200 ms."""
    rng = np.random.default_rng(seed)
    for device_s in np.arange(0.01, seconds, 0.01):
        late_s = rng.uniform(0, 0.016) if rng.random() > 0.02 else 0.2
        clock.observe(float(device_s), offset_s + float(device_s) * rate + late_s)


def test_times_do_not_follow_single_late_arrivals() -> None:
    clock = SampleClock()
    arrivals(clock, 30)
    times = clock.host_times(np.linspace(0, 30, 301))
    assert np.diff(times) == pytest.approx(np.full(300, 0.1), rel=1e-3)
    assert times[0] == pytest.approx(100.0, abs=0.003)


@pytest.mark.parametrize("drift", [-0.01, -1e-4, 0.0, 1e-4, 0.01])
def test_the_rate_of_the_meters_clock_is_found(drift: float) -> None:
    clock = SampleClock()
    arrivals(clock, 60, rate=1 + drift)
    assert clock.drift == pytest.approx(drift, abs=1e-4)


def test_the_rate_is_not_told_before_it_can_be_known() -> None:
    clock = SampleClock()
    arrivals(clock, 5)
    assert clock.drift is None


def test_an_hour_is_kept_in_few_points() -> None:
    clock = SampleClock()
    for second in range(3600):
        clock.observe(float(second), 5 + second * 1.0001)
    assert clock.drift == pytest.approx(1e-4, abs=1e-6)
    assert len(clock._device_s) <= 240


def test_asking_for_times_before_any_arrival_is_an_error() -> None:
    with pytest.raises(ValueError, match="no arrival"):
        SampleClock().host_times(np.array([1.0]))


@settings(max_examples=50)
@given(late=st.lists(st.floats(0, 0.5), min_size=5, max_size=60))
def test_times_always_increase_however_late_the_bytes_are(late: list[float]) -> None:
    clock = SampleClock()
    timeline = Timeline(clock)
    times: list[float] = []
    for block, late_s in enumerate(late):
        clock.observe((block + 1) * 0.1, (block + 1) * 0.1 + late_s)
        times += timeline.host_times(block * 0.1 + np.arange(100) * 0.001).tolist()
    assert (np.diff(times) > 0).all()


def test_a_late_start_is_made_up_for_without_a_jump() -> None:
    clock = SampleClock()
    timeline = Timeline(clock)
    times: list[float] = []
    for block in range(50):
        late_s = 0.3 if block == 0 else 0.0
        clock.observe((block + 1) * 0.1, (block + 1) * 0.1 + late_s)
        times += timeline.host_times(block * 0.1 + np.arange(100) * 0.001).tolist()
    assert times[-1] == pytest.approx(4.999, abs=1e-6)
    assert np.diff(times).min() >= 0.0005 - 1e-9
