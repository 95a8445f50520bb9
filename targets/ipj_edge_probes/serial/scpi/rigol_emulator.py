"""An emulated DC supply in the words of a Rigol DP800, with or without a question for power, and its faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ipj_edge_probes.serial.emulation.command_line import parse
from ipj_edge_probes.serial.emulation.profile import Profile
from ipj_edge_probes.serial.emulation.pty_host import UnplugError, serve
from ipj_edge_probes.serial.scpi.emulated_line import ScpiTalk

RIGOL_DP832 = "RIGOL TECHNOLOGIES,DP832,DP8C123456789,00.01.16"
CHANNELS = ("CH1", "CH2", "CH3")


@dataclass(frozen=True, kw_only=True)
class RigolFaults:
    """What goes wrong.

    Attributes:
        over_range_at_s: When it answers 9.9E37 for power, in seconds since the first command; 0 never.
        no_power_question: It knows volts and amperes only.
        output_off: Its channel is off and it has no data.
        unplug_at_s: When the cable is pulled; 0 never.
    """

    over_range_at_s: float = 0.0
    no_power_question: bool = False
    output_off: bool = False
    unplug_at_s: float = 0.0


class RigolEmulator:
    """The supply, without a port; see `ipj_edge_probes.serial.emulation.pty_host.Instrument`.

    Args:
        load: Current drawn from channel 1; the others are idle.
        faults: What goes wrong.
        identity: Answer to ``*IDN?``.
        supply_v: Voltage of channel 1.
    """

    def __init__(
        self,
        load: Profile,
        faults: RigolFaults | None = None,
        *,
        identity: str = RIGOL_DP832,
        supply_v: float = 5.0,
    ) -> None:
        self._load = load
        self._faults = faults or RigolFaults()
        self._supply_v = supply_v
        self._talk = ScpiTalk(self, identity)
        self._began_s: float | None = None

    def receive(self, data: bytes, now_s: float) -> bytes:
        """Answer commands."""
        if self._began_s is None:
            self._began_s = now_s
        return self._talk.receive(data, now_s)

    def produce(self, now_s: float) -> bytes:
        """Say nothing unasked."""
        if self._began_s is not None and 0 < self._faults.unplug_at_s <= now_s - self._began_s:
            raise UnplugError
        return b""

    def obey(self, command: str, now_s: float) -> str | None:
        """Carry out a command; see `ipj_edge_probes.serial.scpi.emulated_line.Language`."""
        name, _, channel = command.lstrip(":").partition(" ")
        if channel and channel not in CHANNELS:
            return None
        elapsed_s = now_s - (self._began_s or 0.0)
        on = channel in ("", "CH1")
        amps = float(self._load.at(np.array([elapsed_s]))[0]) if on else 0.0
        volts = self._supply_v if on else 0.0
        figures: dict[str, tuple[float, ...]] = {"MEAS:VOLT?": (volts,), "MEAS:CURR?": (amps,)}
        if not self._faults.no_power_question:
            figures |= {"MEAS:POWE?": (volts * amps,), "MEAS:ALL?": (volts, amps, volts * amps)}
        if name not in figures:
            return None
        if self._faults.output_off:
            return "9.91E37"
        if 0 < self._faults.over_range_at_s <= elapsed_s:
            return "9.9E37"
        return ",".join(f"{figure:.4f}" for figure in figures[name])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the emulator on a pty."""
    load, faults = parse("Emulates a Rigol DP832 supply on a pty.", RigolFaults, argv, current_a=0.5)
    return serve(RigolEmulator(load, faults))


if __name__ == "__main__":
    raise SystemExit(main())
