"""An emulated Yokogawa WT310: it measures a load on the mains and integrates, and its faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ipj_edge_probes.serial.emulation.command_line import parse
from ipj_edge_probes.serial.emulation.profile import Profile
from ipj_edge_probes.serial.emulation.pty_host import UnplugError, serve
from ipj_edge_probes.serial.scpi.emulated_line import ScpiTalk

IDENTITY = "YOKOGAWA,WT310,C3QB12345E,F1.03"
RATES_S = {"100MS": 0.1, "250MS": 0.25, "500MS": 0.5, "1S": 1.0, "2S": 2.0, "5S": 5.0}
NO_DATA, OVER_RANGE = "9.91E+37", "9.9E+37"


@dataclass(frozen=True, kw_only=True)
class Wt310Faults:
    """What goes wrong.

    Attributes:
        over_range_at_s: When the current goes over the range, in seconds of integration; 0 never.
        no_data: It never has figures.
        time_up_at_s: When the integration ends by itself; 0 never.
        refuse_start: It does not begin to integrate.
        reversed_current: The current terminals are turned around.
        unplug_at_s: When the cable is pulled, in seconds of integration; 0 never.
    """

    over_range_at_s: float = 0.0
    no_data: bool = False
    time_up_at_s: float = 0.0
    refuse_start: bool = False
    reversed_current: bool = False
    unplug_at_s: float = 0.0


class Wt310Emulator:
    """The instrument, without a port; see `ipj_edge_probes.serial.emulation.pty_host.Instrument`.

    Args:
        load: Current drawn; the power factor is 1.
        faults: What goes wrong.
        mains_v: Mains voltage in volts.
    """

    def __init__(self, load: Profile, faults: Wt310Faults | None = None, *, mains_v: float = 230.0) -> None:
        self._load = load
        self._faults = faults or Wt310Faults()
        self._mains_v = mains_v
        self._talk = ScpiTalk(self, IDENTITY)
        self._items = {1: "U", 2: "I", 3: "P"}
        self._number = 3
        self._update_s = 0.25
        self._state = "RES"
        self._began_s: float | None = None
        self._elapsed_s = 0.0

    def receive(self, data: bytes, now_s: float) -> bytes:
        """Answer commands."""
        self._advance(now_s)
        return self._talk.receive(data, now_s)

    def produce(self, now_s: float) -> bytes:
        """Say nothing unasked."""
        self._advance(now_s)
        if self._state == "STAR" and 0 < self._faults.unplug_at_s <= self._elapsed_s:
            raise UnplugError
        return b""

    def obey(self, command: str, now_s: float) -> str | None:
        """Carry out a command; see `ipj_edge_probes.serial.scpi.emulated_line.Language`."""
        name, _, value = command.lstrip(":").partition(" ")
        if name.startswith("INTEGRATE:"):
            return self._integrate(name.removeprefix("INTEGRATE:"), now_s)
        if name.startswith("NUMERIC:"):
            return self._numeric(name.removeprefix("NUMERIC:"), value)
        if name == "RATE":
            self._update_s = RATES_S.get(value, self._update_s)
            return "" if value in RATES_S else None
        known = name in ("COMMUNICATE:REMOTE", "COMMUNICATE:HEADER", "INPUT:MODE", "*RST", "*CLS")
        return "" if known else None

    def _integrate(self, name: str, now_s: float) -> str | None:
        if name == "STATE?":
            return self._state
        if name == "RESET":
            self._state, self._elapsed_s = "RES", 0.0
        elif name == "START" and not self._faults.refuse_start:
            self._state, self._began_s = "STAR", now_s
        elif name == "STOP" and self._state == "STAR":
            self._state = "STOP"
        return "" if name in ("RESET", "START", "STOP", "MODE", "TIMER") else None

    def _numeric(self, name: str, value: str) -> str | None:
        if name == "NORMAL:VALUE?":
            return ",".join(self._figure(self._items.get(n, "")) for n in range(1, self._number + 1))
        if name == "NORMAL:NUMBER":
            self._number = int(value)
        elif name.startswith("NORMAL:ITEM"):
            self._items[int(name.removeprefix("NORMAL:ITEM"))] = value.partition(",")[0]
        return "" if name == "FORMAT" or name.startswith("NORMAL:") else None

    def _advance(self, now_s: float) -> None:
        if self._state != "STAR" or self._began_s is None:
            return
        elapsed_s = now_s - self._began_s
        self._elapsed_s = elapsed_s
        if 0 < self._faults.time_up_at_s <= elapsed_s:
            self._state = "TIMEUP"[:4]

    def _figure(self, item: str) -> str:
        """Return a figure as of the last update of the display."""
        shown_s = self._elapsed_s - self._elapsed_s % self._update_s
        if self._faults.no_data or (self._state == "STAR" and shown_s == 0):
            return NO_DATA
        if 0 < self._faults.over_range_at_s <= self._elapsed_s:
            return OVER_RANGE
        sign = -1 if self._faults.reversed_current else 1
        amps = sign * float(self._load.at(np.array([shown_s]))[0])
        figures = {
            "U": self._mains_v,
            "I": abs(amps),
            "P": amps * self._mains_v,
            "WH": sign * self._watt_hours(shown_s),
            "TIME": shown_s,
        }
        return scientific(figures[item]) if item in figures else NO_DATA

    def _watt_hours(self, until_s: float) -> float:
        edges_s = np.append(np.array([s for s in self._load.from_s if s < until_s]), until_s)
        return float((self._load.at(edges_s[:-1]) * np.diff(edges_s)).sum()) * self._mains_v / 3600


def scientific(value: float) -> str:
    """Write a number as the instrument does, exponents in threes: ``120.140E+00``."""
    exponent = 0 if value == 0 else int(np.floor(np.log10(abs(value)) / 3)) * 3
    mantissa = value / 10.0**exponent
    digits = max(5 - len(str(int(abs(mantissa)))), 1)
    return f"{mantissa:.{digits}f}E{exponent:+03d}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the emulator on a pty."""
    load, faults = parse("Emulates a Yokogawa WT310 on a pty.", Wt310Faults, argv, current_a=0.5)
    return serve(Wt310Emulator(load, faults))


if __name__ == "__main__":
    raise SystemExit(main())
