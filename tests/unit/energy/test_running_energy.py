import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipj_edge.energy.running import RunningEnergy
from ipj_edge.errors import ProbeReadError

STEPS = st.lists(st.floats(0.001, 0.5), min_size=2, max_size=40)
POWERS = st.floats(0, 500)


def feed(running, times, watts, batches):
    for part in np.array_split(np.arange(times.size), batches):
        running.advance(times[part], watts[part])


@given(STEPS, st.data())
def test_the_energy_of_a_split_window_is_the_sum_of_its_parts(steps, data):
    times = 100 + np.cumsum([0.0, *steps])
    watts = np.array(data.draw(st.lists(POWERS, min_size=times.size, max_size=times.size)))
    cuts = sorted(data.draw(st.lists(st.floats(times[0], times[-1]), min_size=3, max_size=6)))
    running = RunningEnergy(gap_limit_s=10)
    marks = [running.mark(cut) for cut in cuts]
    feed(running, times, watts, data.draw(st.integers(1, 5)))
    joules = [running.settle(mark).joules for mark in marks]
    parts = [later - earlier for earlier, later in itertools.pairwise(joules)]
    assert sum(parts) == pytest.approx(joules[-1] - joules[0], abs=1e-9)
    assert all(part >= -1e-9 for part in parts)


@given(STEPS, POWERS, st.data())
def test_constant_power_gives_power_times_time(steps, power, data):
    times = 100 + np.cumsum([0.0, *steps])
    start, end = sorted(data.draw(st.tuples(*[st.floats(times[0] - 1, times[-1] + 1)] * 2)))
    running = RunningEnergy(gap_limit_s=10)
    first, last = running.mark(start), running.mark(end)
    feed(running, times, np.full(times.size, power), data.draw(st.integers(1, 5)))
    joules = running.settle(last).joules - running.settle(first).joules
    assert joules == pytest.approx(power * (end - start), rel=1e-9, abs=1e-7)


@given(STEPS, st.data())
def test_how_samples_arrive_in_batches_changes_nothing(steps, data):
    times = 100 + np.cumsum([0.0, *steps])
    watts = np.array(data.draw(st.lists(POWERS, min_size=times.size, max_size=times.size)))
    moments = data.draw(st.lists(st.floats(times[0], times[-1]), min_size=2, max_size=2))
    tallies = []
    for batches in (1, 2, times.size):
        running = RunningEnergy(gap_limit_s=0.2)
        marks = [running.mark(moment) for moment in moments]
        feed(running, times, watts, batches)
        tallies.append([running.settle(mark) for mark in marks])
    for other in tallies[1:]:
        for one, same in zip(tallies[0], other, strict=True):
            assert same.joules == pytest.approx(one.joules, abs=1e-9)
            assert same.gap_s == pytest.approx(one.gap_s, abs=1e-9)
            assert same.samples == one.samples


def test_a_ramp_is_integrated_exactly_between_samples():
    running = RunningEnergy(gap_limit_s=10)
    first, last = running.mark(0.25), running.mark(1.5)
    running.advance(np.array([0.0, 1.0, 2.0]), np.array([0.0, 10.0, 20.0]))
    assert running.settle(last).joules - running.settle(first).joules == pytest.approx(5 * (1.5**2 - 0.25**2))


def test_steps_longer_than_the_limit_are_gaps():
    running = RunningEnergy(gap_limit_s=0.2)
    start, end = running.mark(0.0), running.mark(2.0)
    running.advance(np.array([0.0, 0.1, 1.1, 1.2]), np.full(4, 5.0))
    assert running.settle(end).gap_s - running.settle(start).gap_s == pytest.approx(1.0 + 0.8)


def test_a_mark_made_after_its_samples_is_settled_at_once():
    running = RunningEnergy(gap_limit_s=1)
    running.advance(np.array([0.0, 1.0]), np.array([4.0, 4.0]))
    mark = running.mark(0.5)
    assert running.passed(mark)
    assert running.settle(mark).joules == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("times", "watts", "text"),
    [
        ([0.0, 1.0], [1.0, float("nan")], "not a number"),
        ([0.0, float("inf")], [1.0, 1.0], "not a number"),
        ([1.0, 0.5], [1.0, 1.0], "backwards"),
    ],
)
def test_samples_that_cannot_be_are_an_error(times, watts, text):
    with pytest.raises(ProbeReadError, match=text):
        RunningEnergy(1.0).advance(np.array(times), np.array(watts, dtype=float))


def test_no_sample_at_all_is_an_error_not_zero_joules():
    running = RunningEnergy(1.0)
    with pytest.raises(ProbeReadError, match="no sample"):
        running.settle(running.mark(1.0))
