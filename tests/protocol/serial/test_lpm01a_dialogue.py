"""The LPM01A driver against a written dialogue and against the emulator on a pty."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from ipj_edge.errors import ConfigError, ProbeReadError, ProbeUnavailableError, SampleLossError
from ipj_edge.protocols import PowerSampler
from ipj_edge.values import ProbeOptions
from ipj_edge_probes.serial.emulation.dialogue import ScriptedPort, Turn
from ipj_edge_probes.serial.emulation.profile import constant
from ipj_edge_probes.serial.emulation.pty_host import PtyHost
from ipj_edge_probes.serial.lpm01a.emulator import Lpm01aEmulator, Lpm01aFaults
from ipj_edge_probes.serial.lpm01a.probe import Lpm01aMeter, Lpm01aProbe

Window = Callable[[PowerSampler, float], tuple[float, float]]
PROMPT = b"PowerShield > "


def acknowledged(*commands: str) -> list[Turn]:
    return [(f"{command}\n".encode(), PROMPT + f"ack {command}\r\n".encode()) for command in commands]


ENERGY_SETUP = acknowledged(
    *("htc", "acqtime inf", "trigdelay 0", "trigsrc sw", "output energy", "format ascii_dec", "freq 1k"),
    *("volt 3000m", "pwr on nostatus"),
)


def open_on(host: PtyHost, **options: object) -> PowerSampler:
    return Lpm01aProbe().open(ProbeOptions(port=host.port, **{"voltage_v": 3.0} | options))


def drain_for(sampler: PowerSampler, seconds: float) -> None:
    sampler.start()
    try:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            time.sleep(0.05)
            sampler.drain()
    finally:
        sampler.stop()


def test_the_sequence_of_mlperf_tiny_is_sent_and_undone() -> None:
    port = ScriptedPort(
        [
            (b"stop\n", PROMPT + b"error stop\r\nError detail: not running\r\n"),
            *ENERGY_SETUP,
            (b"start\n", PROMPT + b"ack start\r\nTimeStamp: 000s 000ms, buff 00%\r\n\x003000-08\r\n"),
            (b"stop\n", PROMPT + b"ack stop\r\nAcquisition completed\r\n"),
            *acknowledged("hrc"),
        ]
    )
    meter = Lpm01aMeter(port, output="energy", voltage_v=3.0)
    meter.begin()
    # What came with the acknowledgement is the beginning of the stream.
    batch = meter.feed(b"3100-08\r\n")
    assert batch.watts == pytest.approx([0.030, 0.031])
    assert batch.device_s == pytest.approx([0.0005, 0.0015])
    meter.end()
    port.finish()


def test_without_a_voltage_the_meters_own_setting_stays() -> None:
    setup = [turn for turn in ENERGY_SETUP if turn[0] != b"volt 3000m\n"]
    port = ScriptedPort([(b"stop\n", None), *setup])
    meter = Lpm01aMeter(port, output="energy", voltage_v=None)
    port.finish()
    assert "the meter's own setting" in meter.facts.note


@pytest.mark.parametrize("word", ["error", "err"])
def test_a_refused_command_is_reported_with_the_meters_reason(word: str) -> None:
    refusal = PROMPT + f"{word} trigdelay 0\r\nError detail: out of range\r\n".encode()
    port = ScriptedPort([(b"stop\n", None), *ENERGY_SETUP[:2], (b"trigdelay 0\n", refusal)])
    with pytest.raises(ProbeUnavailableError, match="refuses 'trigdelay 0': out of range"):
        Lpm01aMeter(port, output="energy", voltage_v=3.0)


@pytest.mark.parametrize(("options", "error"), [
    ({"voltage_v": 5.0}, ConfigError),
    ({"select": "charge"}, ConfigError),
    ({"select": "current"}, ProbeUnavailableError),
])  # fmt: skip
def test_settings_the_meter_does_not_have_are_refused(options: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error, match="'lpm01a'"):
        Lpm01aProbe().open(ProbeOptions(port="/dev/null", **options))


def test_constant_power_gives_power_times_time(energy_of_window: Window) -> None:
    emulator = Lpm01aEmulator(constant(0.010), Lpm01aFaults(streaming_at_open=True))
    with PtyHost(emulator) as host:
        joules, seconds = energy_of_window(open_on(host), 1.2)
    assert joules == pytest.approx(0.030 * seconds, rel=1e-3)
    assert (emulator.supply_v, emulator.rate_hz, emulator.host_controls) == (3.0, 1000.0, False)


def test_the_binary_current_stream_gives_power_times_time(energy_of_window: Window) -> None:
    with PtyHost(Lpm01aEmulator(constant(0.010))) as host:
        joules, seconds = energy_of_window(open_on(host, select="current"), 0.5)
    assert joules == pytest.approx(0.030 * seconds, rel=2e-3)


def test_a_torn_line_now_and_then_is_bridged(energy_of_window: Window) -> None:
    with PtyHost(Lpm01aEmulator(constant(0.010), Lpm01aFaults(drop_byte_at_s=0.4))) as host:
        joules, seconds = energy_of_window(open_on(host), 1.2)
    assert joules == pytest.approx(0.030 * seconds, rel=1e-3)


@pytest.mark.parametrize(
    ("faults", "select", "error", "message"),
    [
        (Lpm01aFaults(samples_per_stamp=990), "energy", SampleLossError, "lost 10 of"),
        (Lpm01aFaults(drop_byte_every_s=0.2), "current", SampleLossError, "lost 1000 of"),
        (Lpm01aFaults(stamp_clock=1.33), "energy", ProbeReadError, "time stamps advance by 1330 ms"),
        (Lpm01aFaults(overcurrent_at_s=0.3), "energy", ProbeReadError, "overcurrent"),
        (Lpm01aFaults(overcurrent_at_s=0.3), "current", ProbeReadError, "overcurrent"),
        (Lpm01aFaults(full_buffer_at_s=0.3), "current", ProbeReadError, "full buffer"),
        (Lpm01aFaults(unplug_at_s=0.3), "energy", ProbeReadError, "unplugged"),
    ],
)
def test_a_fault_in_the_window_is_an_error(
    faults: Lpm01aFaults, select: str, error: type[Exception], message: str
) -> None:
    with (
        PtyHost(Lpm01aEmulator(constant(0.010), faults)) as host,
        pytest.raises(error, match=message),
    ):
        drain_for(open_on(host, select=select), 60)


def test_a_silent_port_is_said_to_have_no_meter() -> None:
    with (
        PtyHost(Lpm01aEmulator(constant(0.010), Lpm01aFaults(mute=True))) as host,
        pytest.raises(ProbeUnavailableError, match="no X-NUCLEO-LPM01A answers"),
    ):
        open_on(host)
