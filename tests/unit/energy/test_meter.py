import math
import re
import threading
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ipj_edge
from ipj_edge.energy import Meter, PolledSampler, measure, total
from ipj_edge.errors import (
    ConfigError,
    PluginNotFoundError,
    ProbeReadError,
    ProbeUnavailableError,
    SampleLossError,
)
from ipj_edge.testing.sensors import HandCounter, HandProbe, HandSampler, ManualClock
from ipj_edge.values import ProbeFacts, Rail

PACKAGE = Rail(name="package-0", boundary="package")
CORE = Rail(name="core-0", boundary="package", counted=False)
BOARD = Rail(name="input", boundary="board")


def counter_facts(**changes):
    facts = {"name": "rapl", "boundary": "package", "provenance": "measured", "update_interval_s": 0.001}
    return ProbeFacts(**(facts | {"quantum_j": 61e-6} | changes))


def sampler_facts(**changes):
    facts = {"name": "ina", "boundary": "board", "provenance": "measured", "update_interval_s": 0.1}
    return ProbeFacts(**(facts | changes))


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def counter(clock):
    return HandCounter(counter_facts(), [PACKAGE, CORE], lambda: clock.now_s)


@pytest.fixture
def sampler():
    return HandSampler(sampler_facts(), [BOARD])


def spend(clock, counter, seconds, watts, core_share=0.5):
    clock.advance(seconds)
    counter.joules["package-0"] += seconds * watts
    counter.joules["core-0"] += seconds * watts * core_share


def test_a_window_has_the_counters_joules_and_its_parts_are_not_added(clock, counter):
    with Meter([HandProbe(counter)], clocks=clock.clocks) as meter, meter.window("work") as window:
        spend(clock, counter, 2.0, 10.0)
    reading = window.reading
    assert reading.joules == pytest.approx(20.0)
    assert reading.rails == pytest.approx({"package-0": 20.0, "core-0": 10.0})
    assert reading.seconds == pytest.approx(2.0)
    assert (reading.provenance, reading.boundary, reading.probe) == ("measured", "package", "rapl")
    assert reading.low < 20.0 < reading.high
    assert counter.closed


def test_the_interval_of_a_window_is_two_standard_errors_of_its_ends_and_the_gain(clock):
    counter = HandCounter(
        counter_facts(accuracy=0.02, quantum_j=0.5, update_interval_s=0.01), [PACKAGE], lambda: clock.now_s
    )
    with Meter([HandProbe(counter)], clocks=clock.clocks) as meter, meter.window() as window:
        clock.advance(4.0)
        counter.joules["package-0"] = 40.0
    half = 2 * math.sqrt((0.01 * 10.0) ** 2 / 6 + 0.5**2 / 6) + 0.02 * 40.0
    assert (window.reading.low, window.reading.high) == pytest.approx((40.0 - half, 40.0 + half))


def test_windows_nest_and_overlap(clock, counter):
    with Meter([HandProbe(counter)], clocks=clock.clocks) as meter:
        outer, inner, crossing = meter.window("outer"), meter.window("inner"), meter.window("crossing")
        outer.__enter__()
        spend(clock, counter, 1.0, 10.0)
        with inner:
            spend(clock, counter, 1.0, 30.0)
            crossing.__enter__()
            spend(clock, counter, 1.0, 10.0)
        spend(clock, counter, 1.0, 2.0)
        outer.__exit__(None, None, None)
        spend(clock, counter, 1.0, 1.0)
        crossing.__exit__(None, None, None)
    joules = [window.reading.joules for window in (outer, inner, crossing)]
    assert joules == pytest.approx([52.0, 40.0, 13.0])


def test_two_probes_give_two_readings_and_are_never_added_when_they_overlap(clock, counter, sampler):
    meter = Meter([HandProbe(counter), HandProbe(sampler)], clocks=clock.clocks)
    with meter, meter.window() as window:
        for _ in range(101):
            sampler.put(clock.now_s, 25.0)
            spend(clock, counter, 0.1, 10.0)
    assert [reading.joules for reading in window.readings] == pytest.approx([101.0, 252.5])
    assert window.total.joules is None
    assert "not added" in window.total.reason


def test_the_same_boundary_twice_is_not_added(clock, counter):
    twin = HandCounter(counter_facts(name="twin"), [PACKAGE], lambda: clock.now_s)
    with Meter([HandProbe(counter), HandProbe(twin)], clocks=clock.clocks) as meter, meter.window() as window:
        spend(clock, counter, 1.0, 10.0)
        twin.joules["package-0"] = 10.0
    assert total(window.readings).joules is None


def test_package_and_gpu_are_added_and_modelled_with_measured_is_mixed(clock, counter):
    gpu = HandCounter(
        counter_facts(name="nvml", boundary="gpu", provenance="modelled", accuracy=0.1),
        [Rail(name="gpu-0", boundary="gpu")],
        lambda: clock.now_s,
    )
    with Meter([HandProbe(counter), HandProbe(gpu)], clocks=clock.clocks) as meter, meter.window() as window:
        spend(clock, counter, 1.0, 10.0)
        gpu.joules["gpu-0"] = 90.0
    both = window.total
    assert both.joules == pytest.approx(100.0)
    assert both.provenance == "mixed"
    assert both.low < 91.0
    assert both.high > 109.0


def test_a_total_with_a_missing_part_says_which(clock, counter):
    with Meter([HandProbe(counter), "none"], clocks=clock.clocks) as meter, meter.window() as window:
        spend(clock, counter, 1.0, 10.0)
    assert "'none' has no joules" in window.total.reason


def test_a_probe_that_dies_in_a_window_makes_it_invalid_and_is_named(clock, counter, sampler):
    meter = Meter([HandProbe(counter), HandProbe(sampler)], clocks=clock.clocks)
    with meter, meter.window() as window:
        for _ in range(100):
            sampler.put(clock.now_s, 25.0)
            spend(clock, counter, 0.1, 10.0)
        sampler.error = ProbeReadError("the port is gone")
    good, bad = window.readings
    assert good.joules == pytest.approx(100.0)
    assert bad.joules is None
    assert "'ina'" in bad.reason
    assert "the port is gone" in bad.reason
    assert bad.low is None


def test_a_failure_between_the_edges_makes_the_window_invalid_although_the_edges_were_read(clock, counter):
    beaten = threading.Event()

    class Beating(HandCounter):
        def read(self):
            if self.error is not None:
                beaten.set()
            return super().read()

    beating = Beating(counter_facts(heartbeat_s=0.005), [PACKAGE], lambda: clock.now_s)
    beating.joules["package-0"] = 1.0
    with Meter([HandProbe(beating)], clocks=clock.clocks) as meter:
        with meter.window() as window:
            beating.error = OSError(5, "Input/output error")
            assert beaten.wait(60)
            beating.error = None
            clock.advance(1.0)
            beating.joules["package-0"] = 9.0
        with meter.window() as after:
            clock.advance(1.0)
            beating.joules["package-0"] = 19.0
    assert window.reading.joules is None
    assert "Input/output error" in window.reading.reason
    assert after.reading.joules == pytest.approx(10.0)


def test_lost_samples_are_a_reason_not_a_figure(clock, sampler):
    with Meter([HandProbe(sampler)], clocks=clock.clocks) as meter, meter.window() as window:
        clock.advance(10.0)
        sampler.error = SampleLossError("ina", expected=1000, received=990)
    assert "lost 10 of 1000 samples" in window.reading.reason


def test_a_window_too_short_is_refused_with_what_it_needs(clock, counter):
    with Meter([HandProbe(counter)], clocks=clock.clocks, error=0.01) as meter, meter.window() as window:
        spend(clock, counter, 0.05, 10.0)
        window.inferences = 10
    reading = window.reading
    assert reading.joules is None
    assert "too short for ±1 %" in reading.reason
    assert re.search(r"run it 0.15 s longer \(3[01] more inferences\)", reading.reason)


def test_a_coarse_energy_step_makes_the_window_longer(clock):
    plug = HandCounter(
        counter_facts(name="plug", quantum_j=3600.0, update_interval_s=1.0), [PACKAGE], lambda: clock.now_s
    )
    with Meter([HandProbe(plug)], clocks=clock.clocks, error=0.05) as meter, meter.window() as window:
        clock.advance(120.0)
        plug.joules["package-0"] = 36000.0
    assert "too short" in window.reading.reason
    assert "takes 240 s" in window.reading.reason


def test_a_counter_that_did_not_move_gives_no_joules_and_says_what_it_can_tell(clock, counter):
    with Meter([HandProbe(counter)], clocks=clock.clocks) as meter, meter.window() as window:
        clock.advance(1.0)
    assert window.reading.joules is None
    assert "did not move" in window.reading.reason
    assert "6.1e-05 J" in window.reading.reason


def test_a_window_of_no_length_gives_a_reason_never_a_division(clock, counter):
    with Meter([HandProbe(counter)], clocks=clock.clocks) as meter, meter.window() as window:
        pass
    assert window.reading.joules is None
    assert "no length" in window.reading.reason


def test_the_wall_clock_may_jump(clock, counter, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: -1e9)
    with Meter([HandProbe(counter)], clocks=clock.clocks) as meter, meter.window() as window:
        spend(clock, counter, 1.0, 10.0)
        monkeypatch.setattr(time, "time", lambda: 1e12)
    assert window.reading.joules == pytest.approx(10.0)
    assert window.reading.seconds == pytest.approx(1.0)


def test_a_suspend_in_the_window_makes_it_invalid(clock, counter):
    with Meter([HandProbe(counter)], clocks=clock.clocks) as meter:
        with meter.window() as window:
            spend(clock, counter, 1.0, 10.0)
            clock.suspend(3600.0)
        with meter.window() as after:
            spend(clock, counter, 1.0, 10.0)
    assert window.reading.joules is None
    assert "suspended for 3600.0 s" in window.reading.reason
    assert after.reading.joules == pytest.approx(10.0)


@pytest.mark.parametrize("joules", [math.nan, math.inf, -5.0])
def test_no_figure_that_cannot_be_is_passed_on(clock, counter, joules):
    with Meter([HandProbe(counter)], clocks=clock.clocks) as meter, meter.window() as window:
        clock.advance(1.0)
        counter.joules["package-0"] = joules
    reading = window.reading
    assert reading.joules is None
    assert reading.reason
    assert all(value is None or math.isfinite(value) for value in (reading.low, reading.high))


@pytest.mark.parametrize("watts", [math.nan, math.inf, -3.0])
def test_no_sample_that_cannot_be_is_passed_on(clock, sampler, watts):
    with Meter([HandProbe(sampler)], clocks=clock.clocks) as meter, meter.window() as window:
        for index in range(100):
            sampler.put(clock.now_s, watts if index == 50 or watts < 0 else 5.0)
            clock.advance(0.1)
    assert window.reading.joules is None
    assert window.reading.reason


def test_gaps_in_the_samples_lower_the_coverage_and_widen_the_interval(clock, sampler):
    def run(gap_s):
        with Meter([HandProbe(sampler)], clocks=clock.clocks) as meter, meter.window() as window:
            for index in range(100):
                sampler.put(clock.now_s, 10.0)
                clock.advance(gap_s if index == 50 else 0.1)
        return window.reading

    whole, holed, lost = run(0.1), run(0.8), run(5.0)
    assert whole.coverage == 1.0
    assert holed.coverage == pytest.approx(1 - 0.8 / 10.7)
    assert holed.joules == pytest.approx(107.0)
    assert holed.high - holed.low > (whole.high - whole.low) + 2 * 7.9
    assert lost.joules is None
    assert "cover only" in lost.reason


def test_a_sampler_without_a_sample_gives_a_reason(clock, sampler):
    with Meter([HandProbe(sampler)], clocks=clock.clocks) as meter, meter.window() as window:
        clock.advance(10.0)
    assert window.reading.joules is None
    assert "no sample" in window.reading.reason


def test_a_step_of_the_power_figure_too_coarse_for_the_error_cannot_be_waited_out(clock):
    bmc = HandSampler(sampler_facts(name="ipmi", resolution_w=1.0, update_interval_s=1.0), [BOARD])
    with Meter([HandProbe(bmc)], clocks=clock.clocks, error=0.01) as meter, meter.window() as window:
        for _ in range(1000):
            bmc.put(clock.now_s, 20.0)
            clock.advance(1.0)
    assert "cannot reach ±1 % at 20 W with any window" in window.reading.reason


@given(st.floats(0.1, 1e4), st.floats(0.05, 3600.0))
def test_constant_power_on_a_counter_gives_power_times_time(watts, seconds):
    clock = ManualClock()
    counter = HandCounter(counter_facts(), [PACKAGE], lambda: clock.now_s)
    with Meter([HandProbe(counter)], clocks=clock.clocks, error=0.05) as meter, meter.window() as window:
        clock.advance(seconds)
        counter.joules["package-0"] = watts * seconds
    assert window.reading.joules == pytest.approx(watts * seconds)
    assert 0 <= window.reading.low <= window.reading.joules <= window.reading.high < math.inf


def test_edges_aligned_to_the_counters_steps_scale_the_tail_off():
    """A counter that steps every 100 ms, and work at 50 W between two steps: unaligned it is off by up to a
    step.
    """
    clock = ManualClock(1000.003)

    class Stepping(HandCounter):
        def read(self):
            clock.advance(0.0005)  # what a read takes
            self.joules["package-0"] = 50.0 * math.floor((clock.now_s - 1000) / 0.1) * 0.1
            return super().read()

    stepping = Stepping(counter_facts(update_interval_s=0.1, quantum_j=0.0), [PACKAGE], lambda: clock.now_s)
    with Meter([HandProbe(stepping)], clocks=clock.clocks, align=True) as meter, meter.window() as window:
        clock.advance(0.73)
    reading = window.reading
    assert reading.seconds == pytest.approx(0.73, abs=0.002)
    assert reading.joules == pytest.approx(50.0 * reading.seconds, rel=0.003)
    assert reading.update_interval_s < 0.015


def test_a_busy_thread_that_starves_the_sampler_shows_in_the_coverage_figure_not_in_the_joules():
    stop = threading.Event()

    def slow_sensor():
        time.sleep(0.02)
        return {"input": 8.0}

    def spin():
        while not stop.is_set():
            sum(range(1000))

    sampler = PolledSampler(sampler_facts(update_interval_s=0.01), [BOARD], slow_sensor, 0.01)
    thread = threading.Thread(target=spin)
    with Meter([HandProbe(sampler)], error=0.5) as meter, meter.window() as window:
        thread.start()
        time.sleep(0.6)
        stop.set()
        thread.join()
    reading = window.reading
    assert 0.0 <= reading.coverage <= 1.0
    assert reading.joules is None or reading.joules == pytest.approx(8.0 * reading.seconds, rel=1e-6)
    assert reading.update_interval_s > 0.02  # as slow as it was really asked, not as fast as it was meant to be


def test_a_window_that_outlives_its_meter_says_so(clock, counter, sampler):
    meter = Meter([HandProbe(counter), HandProbe(sampler)], clocks=clock.clocks)
    with meter:
        window, late = meter.window(), meter.window()
        window.__enter__()
        spend(clock, counter, 1.0, 10.0)
    window.__exit__(None, None, None)
    with late:
        pass
    assert all("the meter was closed" in reading.reason for reading in (*window.readings, *late.readings))
    assert not sampler.running


def test_a_probe_that_cannot_be_opened_gives_a_reading_with_its_reason(clock):
    refused = HandProbe(None, name="rapl", reason="present but not permitted; fix: sudo chmod a+r …")
    with Meter([refused], clocks=clock.clocks) as meter, meter.window() as window:
        clock.advance(1.0)
    assert window.reading.joules is None
    assert "sudo chmod" in window.reading.reason
    assert window.reading.probe == "rapl"


def test_no_probe_is_a_reading_with_that_reason():
    with measure("none") as energy:
        pass
    assert energy.reading.joules is None
    assert energy.reading.reason == "no probe was asked for"
    assert str(energy.reading) == "no joules (none): no probe was asked for"


def test_a_required_measurement_that_is_refused_raises(clock, counter):
    refused = HandProbe(None, name="rapl", reason="not permitted", fix="sudo chmod")
    with pytest.raises(ProbeUnavailableError, match=r"not permitted \(fix: sudo chmod\)"):
        measure(refused, require_measured=True).__enter__()
    with measure(HandProbe(counter), require_measured=True) as energy:
        counter.joules["package-0"] = 1.0
    assert energy.reading.probe == "rapl"


def test_an_unknown_probe_lists_the_installed_ones():
    with pytest.raises(PluginNotFoundError, match="rapl"):
        measure("nonesuch").__enter__()


@pytest.mark.parametrize("probes", ["auto", []])
def test_probes_are_a_list(probes):
    with pytest.raises(ConfigError, match="list"):
        Meter(probes)


def test_a_reading_asked_for_too_early_says_so(counter):
    with measure(HandProbe(counter)) as energy, pytest.raises(ConfigError, match="ended"):
        _ = energy.reading
    with pytest.raises(ConfigError, match="open the meter"):
        Meter([HandProbe(counter)]).window()


def test_an_error_in_the_block_passes_and_the_probe_is_released(clock, counter):
    with pytest.raises(ZeroDivisionError), measure(HandProbe(counter)):
        _ = 1 / 0
    assert counter.closed


def test_a_failure_to_open_one_probe_leaves_the_others_released(clock, counter):
    with pytest.raises(PluginNotFoundError):
        Meter([HandProbe(counter), "nonesuch"]).__enter__()
    assert counter.closed


def test_the_public_names_are_the_ones_of_the_design():
    assert ipj_edge.measure is measure
    assert ipj_edge.Meter is Meter


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "3.92 J ± 2 % (measured, package)"),
        ({"joules": 0.0041, "low": 0.00205, "high": 0.00615, "provenance": "modelled"}, "4.10 mJ ± 50 %"),
        ({"joules": 12345.6, "low": None, "high": None}, "12.3 kJ (measured, package)"),
        ({"joules": 999.96, "low": None, "high": None}, "1.00 kJ"),
        ({"joules": 0.0, "low": 0.0, "high": 0.0}, "0 J"),
        ({"accuracy": None}, "(measured, package; gain error not stated)"),
    ],
)
def test_a_reading_prints_as_a_person_writes_it(changes, text):
    values = {
        "joules": 3.92,
        "low": 3.92 * 0.98,
        "high": 3.92 * 1.02,
        "seconds": 1.0,
        "provenance": "measured",
        "boundary": "package",
        "probe": "rapl",
        "update_interval_s": 0.001,
        "accuracy": 0.01,
    }
    assert text in str(ipj_edge.values.Reading(**(values | changes)))


def test_the_quantum_of_a_meter_that_shows_fewer_digits_as_it_counts_is_that_of_the_end() -> None:
    clock = ManualClock()
    counter = HandCounter(counter_facts(), [PACKAGE], lambda: clock.now_s)
    with Meter((HandProbe(counter),), clocks=clock.clocks) as meter, meter.window() as window:
        clock.advance(10.0)
        counter.joules["package-0"] = 500.0
        counter.facts = msgspec.structs.replace(counter.facts, quantum_j=2.5)
    assert window.reading.quantum_j == 2.5
