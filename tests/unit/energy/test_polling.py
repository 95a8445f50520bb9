import itertools
import time

import numpy as np
import pytest

from ipj_edge.energy import PolledSampler, measure_update_interval_s
from ipj_edge.errors import ProbeReadError
from ipj_edge.testing.sensors import ManualClock
from ipj_edge.values import ProbeFacts, Rail

FACTS = ProbeFacts(name="ina", boundary="board", provenance="measured", update_interval_s=0.01)
RAILS = [Rail(name="a", boundary="board"), Rail(name="b", boundary="board", counted=False)]


def counting(read):
    """Return a read that counts its calls, and a function that waits until it was called so often."""
    calls = itertools.count(1)
    seen = [0]

    def counted():
        seen[0] = next(calls)
        return read()

    def wait_for(count):
        until_s = time.monotonic() + 60
        while seen[0] < count:
            assert time.monotonic() < until_s, f"{seen[0]} reads in a minute"
            time.sleep(0.005)

    return counted, wait_for


def sampled(read, count=12, **changes):
    counted, wait_for = counting(read)
    sampler = PolledSampler(FACTS, RAILS, counted, 0.01, **changes)
    sampler.start()
    wait_for(count)
    sampler.stop()
    return sampler.drain()


def test_every_rail_is_sampled_at_the_same_increasing_times():
    samples = sampled(lambda: {"a": 2.0, "b": 1.0})
    times_s, watts = samples["a"]
    assert times_s.dtype == watts.dtype == np.float64
    assert times_s.shape == watts.shape
    assert times_s.size >= 12
    # Polls due 10 ms apart, give or take a tenth: a late one is made up for, none comes early.
    assert times_s[-1] - times_s[0] >= 0.009 * (times_s.size - 1) - 0.01
    assert (np.diff(times_s) > 0).all()
    assert set(watts) == {2.0}
    assert samples["b"][0].tolist() == times_s.tolist()


def test_the_intervals_are_jittered_so_that_polls_do_not_fall_into_step():
    intervals = np.diff(sampled(lambda: {"a": 2.0, "b": 1.0}, jitter=0.5)["a"][0])
    assert intervals.std() > 0.001


def test_drain_forgets_what_it_gave():
    sampler = PolledSampler(FACTS, RAILS, lambda: {"a": 1.0, "b": 1.0}, 10.0)
    sampler.start()
    assert sampler.drain()["a"][0].size == 1
    assert sampler.drain()["a"][0].size == 0
    sampler.stop()


def test_a_sample_is_dated_to_the_middle_of_its_read():
    clock = ManualClock(100.0)

    def read():
        clock.advance(2.0)
        return {"a": 1.0, "b": 1.0}

    sampler = PolledSampler(FACTS, RAILS, read, 1000.0, clock=lambda: clock.now_s)
    sampler.start()
    assert sampler.drain()["a"][0].tolist() == [101.0]
    sampler.stop()


@pytest.mark.parametrize("error", [OSError(61, "No data available"), ProbeReadError("over range")])
def test_a_failed_read_is_raised_once_and_polling_goes_on(error):
    calls = itertools.count()

    def read():
        if next(calls) == 2:
            raise error
        return {"a": 1.0, "b": 1.0}

    counted, wait_for = counting(read)
    sampler = PolledSampler(FACTS, RAILS, counted, 0.005)
    sampler.start()
    wait_for(8)
    with pytest.raises(ProbeReadError, match=r"No data available|over range"):
        sampler.drain()
    assert sampler.drain()["a"][0].size > 3
    sampler.stop()


def test_a_sensor_that_fails_at_once_fails_to_start():
    def read():
        raise OSError(5, "Input/output error")

    with pytest.raises(ProbeReadError, match="'ina' cannot be read"):
        PolledSampler(FACTS, RAILS, read, 0.01).start()


def test_a_rail_without_a_value_is_an_error_not_zero():
    with pytest.raises(ProbeReadError, match="no value for b"):
        PolledSampler(FACTS, RAILS, lambda: {"a": 1.0}, 0.01).start()


def test_stop_may_be_called_twice_and_before_start():
    sampler = PolledSampler(FACTS, RAILS, lambda: {"a": 1.0, "b": 1.0}, 0.01)
    sampler.stop()
    sampler.start()
    sampler.start()
    sampler.stop()
    sampler.stop()


def test_slow_reads_are_not_made_up_for_in_a_burst():
    def read():
        time.sleep(0.05)
        return {"a": 1.0, "b": 1.0}

    times_s = sampled(read, 8)["a"][0]
    assert np.diff(times_s).min() > 0.045


def test_a_sensors_update_interval_is_found_by_watching_it():
    clock = ManualClock()
    found = measure_update_interval_s(
        lambda: clock.now_s // 0.1,
        timeout_s=10.0,
        poll_s=0.004,
        clock=lambda: clock.now_s,
        sleep=clock.advance,
    )
    assert found == pytest.approx(0.1, abs=0.004)


def test_a_sensor_that_stands_still_has_no_interval():
    clock = ManualClock()
    found = measure_update_interval_s(
        lambda: 24.0, timeout_s=2.0, poll_s=0.01, clock=lambda: clock.now_s, sleep=clock.advance
    )
    assert found is None
    assert clock.now_s == pytest.approx(1002.0, abs=0.02)
