"""A window over a serial meter, from the bytes on the wire to the reading a user sees."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ipj_edge import measure
from ipj_edge.values import ProbeOptions
from ipj_edge_probes.serial.emulation.profile import Profile, constant
from ipj_edge_probes.serial.emulation.pty_host import Instrument, PtyHost
from ipj_edge_probes.serial.line.emulator import LineMeterEmulator
from ipj_edge_probes.serial.lpm01a.emulator import Lpm01aEmulator
from ipj_edge_probes.serial.ppk2.emulator import Ppk2Emulator, Ppk2Faults
from ipj_edge_probes.serial.scpi.rigol_emulator import RigolEmulator
from ipj_edge_probes.serial.scpi.wt310_emulator import Wt310Emulator
from ipj_edge_probes.serial.um25c.emulator import UmEmulator

LOAD = constant(0.010)


def test_lpm01a_around_a_sleep_gives_power_times_time() -> None:
    with PtyHost(Lpm01aEmulator(LOAD)) as host:
        with measure(probe="lpm01a", options=ProbeOptions(port=host.port)) as energy:
            time.sleep(1)
        reading = energy.reading
    assert reading.joules == pytest.approx(3.3 * 0.010 * reading.seconds, rel=0.02), reading
    assert (reading.provenance, reading.boundary, reading.probe) == ("measured", "rails", "lpm01a")
    assert reading.low is not None
    assert reading.low < reading.joules
    assert reading.coverage > 0.95


@pytest.mark.parametrize(
    ("probe", "instrument", "options", "power_w", "seconds", "error"),
    [
        ("ppk2", Ppk2Emulator(LOAD), {"voltage_v": 3.0, "select": "source"}, 0.030, 1, 0.05),
        ("lpm01a", Lpm01aEmulator(LOAD), {"voltage_v": 3.0, "select": "current"}, 0.030, 1, 0.05),
        ("serial-line", LineMeterEmulator(LOAD), {}, 0.050, 1, 0.05),
        ("scpi", RigolEmulator(LOAD), {}, 0.050, 2, 0.2),
        ("scpi", Wt310Emulator(LOAD), {}, 2.3, 2, 0.2),
        ("um25c", UmEmulator(constant(0.5)), {}, 2.5, 4, 0.5),
    ],
)
def test_every_meter_gives_power_times_time(
    probe: str, instrument: Instrument, options: dict[str, Any], power_w: float, seconds: float, error: float
) -> None:
    with PtyHost(instrument) as host:
        with measure(probe=probe, options=ProbeOptions(port=host.port, **options), error=error) as energy:
            time.sleep(seconds)
        reading = energy.reading
    assert reading.joules is not None, reading
    # Slow meters may miss one update at the ends.
    assert reading.joules == pytest.approx(power_w * reading.seconds, rel=max(0.03, error / 4)), reading


@pytest.mark.parametrize(
    ("instrument", "reason"),
    [
        (Ppk2Emulator(LOAD, Ppk2Faults(unplug_at_s=1.0)), "unplugged"),
        (Ppk2Emulator(LOAD, Ppk2Faults(drop_byte_every_s=0.002)), "lost"),
        (Ppk2Emulator(LOAD, Ppk2Faults(overcurrent_at_s=1.0)), "beyond the range"),
        (Ppk2Emulator(LOAD, Ppk2Faults(uncalibrated=True)), "no calibration"),
    ],
)
def test_a_meter_that_fails_gives_a_reason_and_no_joules(instrument: Instrument, reason: str) -> None:
    with PtyHost(instrument) as host:
        options = ProbeOptions(port=host.port, voltage_v=3.0)
        with measure(probe="ppk2", options=options) as energy:
            time.sleep(2)
    assert energy.reading.joules is None
    assert reason in energy.reading.reason


def test_a_load_that_changes_in_the_window_is_integrated() -> None:
    # Streaming begins when the meter is opened, a moment before the window.
    with PtyHost(Lpm01aEmulator(Profile((0.0, 1.0), (0.010, 0.030)))) as host:
        opened_s = time.monotonic()
        with measure(probe="lpm01a", options=ProbeOptions(port=host.port, voltage_v=3.0)) as energy:
            opening_s = time.monotonic() - opened_s
            time.sleep(2)
        reading = energy.reading
    assert reading.joules is not None, reading
    least, most = (3.0 * (0.010 * low_s + 0.030 * (reading.seconds - low_s)) for low_s in (1.0, 1.0 - opening_s))
    assert 0.98 * least <= reading.joules <= 1.02 * most


def test_the_command_line_measures_a_command_with_a_meter(ipj_edge_cli: Callable[..., Any], tmp_path: Path) -> None:
    with PtyHost(Lpm01aEmulator(LOAD)) as host:
        result = tmp_path / "m.json"
        port = ("--probe", "lpm01a", "--port", host.port, "--voltage", "3.0")
        ran = ipj_edge_cli("measure", *port, "--json", result, "--", "sleep", "1")
    assert ran.code == 0, ran
    measured = json.loads(result.read_text())
    assert measured["joules"] == pytest.approx(0.030 * measured["seconds"], rel=0.02)
