"""What becomes of windows when a sensor fails beside them, or cannot begin."""

import pytest

from ipj_edge.energy import Meter
from ipj_edge.errors import ProbeReadError
from ipj_edge.testing.sensors import HandCounter, HandProbe, HandSampler, ManualClock
from ipj_edge.values import ProbeFacts, Rail

PACKAGE = Rail(name="package-0", boundary="package")
FACTS = ProbeFacts(
    name="rapl", boundary="package", provenance="measured", update_interval_s=0.001, quantum_j=61e-6, heartbeat_s=None
)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.mark.parametrize("edge", ["begin", "end"])
def test_a_failure_at_the_edge_of_an_inner_window_makes_the_outer_one_invalid_too(clock, edge):
    """A counter that was reset goes on from there: what it lost is missing from every window that was open."""
    counter = HandCounter(FACTS, [PACKAGE], lambda: clock.now_s)
    with Meter([HandProbe(counter)], clocks=clock.clocks) as meter:
        with meter.window("outer") as outer:
            clock.advance(10.0)
            counter.joules["package-0"] = 100.0
            inner = meter.window("inner")
            counter.error = ProbeReadError("package-0 was reset") if edge == "begin" else None
            inner.__enter__()
            counter.error = ProbeReadError("package-0 was reset")
            inner.__exit__(None, None, None)
            counter.error = None
            clock.advance(1.0)
            counter.joules["package-0"] = 110.0
        with meter.window("after") as after:
            clock.advance(1.0)
            counter.joules["package-0"] = 120.0
    assert inner.reading.joules is None
    assert outer.reading.joules is None
    assert "package-0 was reset" in outer.reading.reason
    assert after.reading.joules == pytest.approx(10.0)


def test_a_failure_before_a_window_began_does_not_make_it_invalid(clock):
    sampler = HandSampler(FACTS, [PACKAGE])
    with Meter([HandProbe(sampler)], clocks=clock.clocks) as meter:
        sampler.put(clock.now_s, 5.0)
        sampler.fail_once = ProbeReadError("the charger is connected")
        with meter.window() as window:
            for _ in range(1001):
                sampler.put(clock.now_s, 5.0)
                clock.advance(0.001)
    assert window.reading.joules == pytest.approx(5.0, rel=0.01)


def test_a_sensor_that_cannot_begin_is_released(clock):
    class Stubborn(HandSampler):
        released = False

        def start(self):
            raise ProbeReadError("it sent no sample")

        def stop(self):
            self.released = True

    sampler = Stubborn(FACTS, [PACKAGE])
    with Meter([HandProbe(sampler)], clocks=clock.clocks) as meter, meter.window() as window:
        clock.advance(1.0)
    assert "it sent no sample" in window.reading.reason
    assert sampler.released


def test_samples_of_0_watts_are_no_figure(clock):
    """A device that runs draws something: the meter cannot see it, or hangs on another wire."""
    sampler = HandSampler(FACTS, [PACKAGE])
    with Meter([HandProbe(sampler)], clocks=clock.clocks) as meter, meter.window() as window:
        for _ in range(1001):
            sampler.put(clock.now_s, 0.0)
            clock.advance(0.001)
    assert window.reading.joules is None
    assert "0 W" in window.reading.reason
