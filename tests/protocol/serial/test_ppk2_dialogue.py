"""The PPK2 driver against a written dialogue and against the emulator on a pty."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from ipj_edge.errors import ConfigError, ProbeReadError, ProbeUnavailableError, SampleLossError
from ipj_edge.protocols import PowerSampler
from ipj_edge.values import ProbeOptions
from ipj_edge_probes.serial.emulation.dialogue import ScriptedPort, Turn
from ipj_edge_probes.serial.emulation.profile import Profile, constant
from ipj_edge_probes.serial.emulation.pty_host import PtyHost
from ipj_edge_probes.serial.ppk2.emulator import Ppk2Emulator, Ppk2Faults, metadata_text
from ipj_edge_probes.serial.ppk2.probe import Ppk2Meter, Ppk2Probe

Window = Callable[[PowerSampler, float], tuple[float, float]]
METADATA = metadata_text(Ppk2Faults(), 3300, 2).encode()
GREETING: list[Turn] = [(b"\x07", None), (b"\x19", METADATA)]


def open_on(host: PtyHost, **options: object) -> PowerSampler:
    return Ppk2Probe().open(ProbeOptions(port=host.port, **{"voltage_v": 3.0, "select": "source"} | options))


def drain_for(sampler: PowerSampler, seconds: float) -> int:
    """Drain until an error comes; return the samples before it."""
    count = 0
    sampler.start()
    try:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            time.sleep(0.05)
            ((times_s, _),) = sampler.drain().values()
            count += len(times_s)
    finally:
        sampler.stop()
    return count


def test_source_mode_sets_the_regulator_then_the_mode_then_the_power() -> None:
    port = ScriptedPort([*GREETING, (b"\x0d\x0c\xe4", None), (b"\x11\x02", None), (b"\x0c\x01", None)])
    Ppk2Meter(port, voltage_v=3.3, mode="source")
    port.finish()


def test_ampere_mode_leaves_the_regulator_alone() -> None:
    port = ScriptedPort([*GREETING, (b"\x11\x01", None), (b"\x0c\x01", None), (b"\x06", None), (b"\x07", None)])
    meter = Ppk2Meter(port, voltage_v=5.0, mode="ampere")
    meter.begin()
    meter.end()
    port.finish()
    assert "as given, not measured" in meter.facts.note


def test_stale_bytes_are_drained_before_metadata_is_asked() -> None:
    stale: list[Turn] = [(b"\x07", b"\x01\x02\x03" * 100)]
    port = ScriptedPort([*stale, (b"\x19", METADATA), (b"\x11\x01", None), (b"\x0c\x01", None)])
    Ppk2Meter(port, voltage_v=5.0, mode="ampere")
    port.finish()


def test_metadata_that_cannot_be_read_is_asked_for_once_more() -> None:
    once: list[Turn] = [(b"\x07", None), (b"\x19", b"\x80\x81END")]
    port = ScriptedPort([*once, *GREETING, (b"\x11\x01", None), (b"\x0c\x01", None)])
    Ppk2Meter(port, voltage_v=5.0, mode="ampere")
    port.finish()


def test_an_uncalibrated_unit_is_refused() -> None:
    text = metadata_text(Ppk2Faults(uncalibrated=True), 3000, 2).encode()
    with pytest.raises(ProbeUnavailableError, match="no calibration of its own"):
        Ppk2Meter(ScriptedPort([(b"\x07", None), (b"\x19", text)]), voltage_v=3.0, mode="ampere")


def test_a_stream_becomes_watts_at_the_mid_points_of_milliseconds() -> None:
    port = ScriptedPort([*GREETING, (b"\x0d\x0b\xb8", None), (b"\x11\x02", None), (b"\x0c\x01", None)])
    meter = Ppk2Meter(port, voltage_v=3.0, mode="source")
    emulator = Ppk2Emulator(constant(0.010))
    for command in (b"\x0d\x0b\xb8", b"\x0c\x01", b"\x06"):
        emulator.receive(command, 0.0)
    batch = meter.feed(emulator.produce(0.1001))
    assert batch.device_s[:3] == pytest.approx([0.0005, 0.0015, 0.0025])
    assert batch.watts == pytest.approx(np.full(100, 0.030), rel=1e-3)
    assert (batch.lost, batch.expected) == (0, 10_008)


def test_current_without_a_voltage_is_refused() -> None:
    with pytest.raises(ProbeUnavailableError, match="--voltage"):
        Ppk2Probe().open(ProbeOptions(port="/dev/null"))
    found = Ppk2Probe().availability(ProbeOptions(port="/dev/null"))
    assert (found.available, "--voltage" in found.fix) == (False, True)


@pytest.mark.parametrize(("voltage_v", "select"), [(0.5, "source"), (5.5, "ampere"), (3.0, "battery")])
def test_settings_the_unit_does_not_have_are_refused(voltage_v: float, select: str) -> None:
    with pytest.raises(ConfigError, match="'ppk2'"):
        Ppk2Probe().open(ProbeOptions(port="/dev/null", voltage_v=voltage_v, select=select))


@pytest.mark.parametrize("current_a", [20e-6, 2e-3, 10e-3, 0.2])
def test_constant_power_gives_power_times_time(energy_of_window: Window, current_a: float) -> None:
    with PtyHost(Ppk2Emulator(constant(current_a))) as host:
        joules, seconds = energy_of_window(open_on(host), 0.5)
    assert joules == pytest.approx(3.0 * current_a * seconds, rel=1e-3)


def test_a_load_in_steps_gives_the_sum_of_its_steps() -> None:
    load = Profile((0.0, 0.5), (1e-3, 101e-3))
    with PtyHost(Ppk2Emulator(load)) as host:
        sampler = open_on(host)
        sampler.start()
        times: list[float] = []
        watts: list[float] = []
        while len(times) < 1000:
            time.sleep(0.05)
            ((time_s, power_w),) = sampler.drain().values()
            times += time_s.tolist()
            watts += power_w.tolist()
        sampler.stop()
    joules = np.trapezoid(watts[:1000], times[:1000])
    assert joules == pytest.approx(3.0 * (0.5 * 1e-3 + 0.4995 * 101e-3), rel=5e-3)


def test_the_device_under_test_gets_power_or_there_is_no_current() -> None:
    emulator = Ppk2Emulator(constant(0.010))
    with PtyHost(emulator) as host:
        open_on(host, voltage_v=1.8).stop()
        deadline = time.monotonic() + 10
        while not emulator.powered and time.monotonic() < deadline:
            time.sleep(0.01)
    assert (emulator.powered, emulator.mode, emulator.vdd_mv) == (True, 2, 1800)


def test_misaligned_start_stale_samples_and_nan_metadata_leave_the_figure_right(energy_of_window: Window) -> None:
    faults = Ppk2Faults(misaligned_start=3, stale_samples=50, nan_metadata=True)
    with PtyHost(Ppk2Emulator(constant(0.010), faults)) as host:
        joules, seconds = energy_of_window(open_on(host), 0.3)
    assert joules == pytest.approx(0.030 * seconds, rel=1e-3)


def test_a_dropped_byte_now_and_then_is_bridged(energy_of_window: Window) -> None:
    with PtyHost(Ppk2Emulator(constant(0.010), Ppk2Faults(drop_byte_every_s=0.1))) as host:
        joules, seconds = energy_of_window(open_on(host), 0.5)
    assert joules == pytest.approx(0.030 * seconds, rel=1e-3)


def test_more_than_one_lost_sample_in_a_thousand_is_an_error() -> None:
    with (
        PtyHost(Ppk2Emulator(constant(0.010), Ppk2Faults(drop_byte_every_s=0.002))) as host,
        pytest.raises(SampleLossError, match="'ppk2' lost") as caught,
    ):
        drain_for(open_on(host), 60)
    assert caught.value.expected > caught.value.received


def test_overcurrent_spoils_the_window() -> None:
    with (
        PtyHost(Ppk2Emulator(constant(0.010), Ppk2Faults(overcurrent_at_s=0.2))) as host,
        pytest.raises(ProbeReadError, match="beyond the range"),
    ):
        drain_for(open_on(host), 60)


def test_unplugging_in_the_window_is_an_error_and_stopping_still_works(
    until_it_fails: Callable[[Callable[[], object]], None],
) -> None:
    with PtyHost(Ppk2Emulator(constant(0.010))) as host:
        sampler = open_on(host)
        sampler.start()
        host.unplug()
        with pytest.raises(ProbeReadError, match="unplugged"):
            until_it_fails(sampler.drain)
        with pytest.raises(ProbeReadError, match="unplugged"):
            sampler.drain()
        sampler.stop()
        sampler.stop()


def test_something_else_at_the_port_is_said_to_be_no_ppk2() -> None:
    with (
        PtyHost(Ppk2Emulator(constant(0.010), Ppk2Faults(garbage_metadata=True))) as host,
        pytest.raises(ProbeUnavailableError, match="no PPK2 answers"),
    ):
        open_on(host)
