"""The driver of home-made line meters against the emulator on a pty."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from ipj_edge.errors import ConfigError, ProbeReadError, ProbeUnavailableError, SampleLossError
from ipj_edge.protocols import PowerSampler
from ipj_edge.values import ProbeOptions
from ipj_edge_probes.serial.emulation.profile import constant
from ipj_edge_probes.serial.emulation.pty_host import PtyHost
from ipj_edge_probes.serial.line.emulator import LineFaults, LineMeterEmulator
from ipj_edge_probes.serial.line.probe import SerialLineProbe

Window = Callable[[PowerSampler, float], tuple[float, float]]


def open_on(host: PtyHost, **options: object) -> PowerSampler:
    return SerialLineProbe().open(ProbeOptions(port=host.port, **options))


def drain_for(sampler: PowerSampler, seconds: float) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        time.sleep(0.05)
        sampler.drain()


@pytest.mark.parametrize(
    ("faults", "select"),
    [
        (LineFaults(wrap_at_s=2.6, comments=True, partial_start=True), None),
        (LineFaults(no_time=True), None),
        (LineFaults(no_header=True, partial_start=True, clock=1.01), "t_ms,bus_mV,current_mA"),
    ],
)
def test_constant_power_gives_power_times_time(
    energy_of_window: Window, faults: LineFaults, select: str | None
) -> None:
    with PtyHost(LineMeterEmulator(constant(0.1), faults)) as host:
        sampler = open_on(host, select=select)
        assert sampler.facts.update_interval_s == pytest.approx(0.005, rel=0.03)
        joules, seconds = energy_of_window(sampler, 0.8)
    assert joules == pytest.approx(0.5 * seconds, rel=1e-3)


@pytest.mark.parametrize("faults", [LineFaults(lose_every=100), LineFaults(garble_every=100, no_time=True)])
def test_more_than_one_lost_line_in_a_thousand_is_an_error(faults: LineFaults) -> None:
    with PtyHost(LineMeterEmulator(constant(0.1), faults)) as host:
        sampler = open_on(host)
        sampler.start()
        with pytest.raises(SampleLossError, match="'serial-line' lost"):
            drain_for(sampler, 60)
        sampler.stop()


def test_a_meter_that_is_reset_in_the_window_is_an_error() -> None:
    with PtyHost(LineMeterEmulator(constant(0.1), LineFaults(reset_at_s=3.0))) as host:
        sampler = open_on(host)
        sampler.start()
        with pytest.raises(ProbeReadError, match="reset in the window"):
            drain_for(sampler, 60)
        sampler.stop()


def test_current_alone_needs_a_voltage() -> None:
    with (
        PtyHost(LineMeterEmulator(constant(0.1))) as host,
        pytest.raises(ConfigError, match="--voltage"),
    ):
        open_on(host, select="t_ms,shunt_mV,current_mA")


@pytest.mark.slow
def test_a_meter_without_a_header_is_refused_with_the_way_out() -> None:
    with (
        PtyHost(LineMeterEmulator(constant(0.1), LineFaults(no_header=True))) as host,
        pytest.raises(ProbeUnavailableError, match="--select t_ms,bus_mV,current_mA"),
    ):
        open_on(host)
