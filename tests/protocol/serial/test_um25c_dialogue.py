"""The UM25C driver against a written dialogue and against the emulator on a pty."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ipj_edge.errors import ProbeReadError, ProbeUnavailableError
from ipj_edge.protocols import PowerSampler
from ipj_edge.values import ProbeOptions
from ipj_edge_probes.serial.emulation.dialogue import ScriptedPort
from ipj_edge_probes.serial.emulation.profile import constant
from ipj_edge_probes.serial.emulation.pty_host import PtyHost
from ipj_edge_probes.serial.um25c.emulator import UmEmulator, UmFaults, record
from ipj_edge_probes.serial.um25c.probe import Um25cProbe, UmMeter

Window = Callable[[PowerSampler, float], tuple[float, float]]


def test_a_record_is_asked_for_and_read() -> None:
    port = ScriptedPort([(b"\xf0", record("UM25C", 5.0, 0.5, 0.0)), (b"\xf0", record("UM25C", 5.0, 0.6, 0.0))])
    meter = UmMeter(port)
    assert meter.measure() == 3.0
    port.finish()
    assert (meter.facts.accuracy, meter.facts.boundary) == (0.0015, "board")


def test_a_short_record_is_asked_for_again() -> None:
    frame = record("UM24C", 5.0, 0.5, 0.0)
    port = ScriptedPort([(b"\xf0", frame[:77]), (b"\xf0", frame)])
    assert UmMeter(port).facts.accuracy is None
    port.finish()


def test_three_torn_records_are_no_meter() -> None:
    frame = record("UM25C", 5.0, 0.5, 0.0)
    with pytest.raises(ProbeUnavailableError, match="no whole record from the meter in 3 tries"):
        UmMeter(ScriptedPort([(b"\xf0", frame[:77])] * 3))


@pytest.mark.parametrize("faults", [UmFaults(), UmFaults(garbage_bytes=2, flip_every=4)])
def test_constant_power_gives_power_times_time(energy_of_window: Window, faults: UmFaults) -> None:
    with PtyHost(UmEmulator(constant(0.5), faults)) as host:
        joules, seconds = energy_of_window(Um25cProbe().open(ProbeOptions(port=host.port)), 1.0)
    assert joules == pytest.approx(2.5 * seconds, rel=1e-3)


def test_unplugging_in_the_window_is_an_error(until_it_fails: Callable[[Callable[[], object]], None]) -> None:
    with PtyHost(UmEmulator(constant(0.5))) as host:
        sampler = Um25cProbe().open(ProbeOptions(port=host.port))
        sampler.start()
        host.unplug()
        with pytest.raises(ProbeReadError, match="unplugged"):
            until_it_fails(sampler.drain)
        sampler.stop()
