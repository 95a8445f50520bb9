"""The emulators themselves: as programs, and on a port that nobody has opened yet."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest
from command_line import LONGEST_S, lines_until

from ipj_edge.plugins import POWER_PROBES, load_probe, names
from ipj_edge.values import ProbeOptions
from ipj_edge_probes.serial.emulation.profile import constant, parse_steps
from ipj_edge_probes.serial.emulation.pty_host import PtyHost
from ipj_edge_probes.serial.line.emulator import LineMeterEmulator
from ipj_edge_probes.serial.ppk2.probe import Ppk2Probe

SERIAL_PROBES = ("ppk2", "lpm01a", "um25c", "scpi", "serial-line")


@pytest.mark.parametrize("name", SERIAL_PROBES)
def test_every_serial_probe_is_registered_and_says_how_it_gets_its_port(name: str) -> None:
    assert name in names(POWER_PROBES)
    probe = load_probe(name)
    found = probe.availability(ProbeOptions())
    assert probe.name == name
    assert (found.available, f"--probe {name} --port" in found.fix) == (False, True)


@pytest.mark.parametrize(
    "name",
    [
        "ppk2.emulator",
        "lpm01a.emulator",
        "um25c.emulator",
        "scpi.wt310_emulator",
        "scpi.rigol_emulator",
        "line.emulator",
    ],
)
def test_every_emulator_explains_its_faults(name: str) -> None:
    command = [sys.executable, "-m", f"ipj_edge_probes.serial.{name}", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert "--unplug-at-s" in shown


def test_an_emulator_runs_as_a_program_and_prints_its_port() -> None:
    command = [
        sys.executable,
        "-m",
        "ipj_edge_probes.serial.ppk2.emulator",
        "--steps",
        "0:0.010",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        port = lines_until(child, child.stdout, "/dev/").strip()
        sampler = Ppk2Probe().open(ProbeOptions(port=port, voltage_v=3.0, select="source"))
        sampler.start()
        watts = np.empty(0)
        while not watts.size and child.poll() is None:
            time.sleep(0.02)
            ((_, watts),) = sampler.drain().values()
        sampler.stop()
        child.terminate()
        child.wait(LONGEST_S)
    assert float(np.mean(watts)) == pytest.approx(0.030, rel=1e-3)


def test_a_board_boots_when_its_port_is_opened() -> None:
    emulator = LineMeterEmulator(constant(0.1))
    with PtyHost(emulator) as host:
        time.sleep(0.3)
        with open(host.port, "rb", buffering=0) as port:
            assert port.readline() == b"t_ms,bus_mV,current_mA\r\n"
            assert port.readline().startswith(b"0,")


def test_steps_are_seconds_and_amperes() -> None:
    load = parse_steps("0:0.010,2.5:0.050")
    assert load.at(np.array([0.0, 2.4, 2.5, 9.0])).tolist() == [0.010, 0.010, 0.050, 0.050]
    with pytest.raises(ValueError, match="SECONDS:AMPERES"):
        parse_steps("0.010")
