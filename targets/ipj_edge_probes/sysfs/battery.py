"""Power probe ``battery``: what a discharging battery gives, from ``/sys/class/power_supply``.

The sign of current and power differs between drivers and ``power_now`` may be missing, so the status decides and
absolute values are taken (Documentation/ABI/testing/sysfs-class-power; macsmc reports -4721000 µW, others +).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ipj_edge.energy.polling import PolledSampler
from ipj_edge.protocols import PowerProbe, PowerSampler
from ipj_edge.values import Availability, ProbeFacts, ProbeOptions, Rail
from ipj_edge_probes.refusal import RefusalError, UnreadableError, availability_of, refusing
from ipj_edge_probes.sysfs.read import Reader, number, read_text, text_or_empty

# Drivers that ask the battery's own gauge at every read, so that a figure is as fresh as the poll. Behind the
# others is an embedded controller that refreshes when it likes, often every 5 s or slower.
_LIVE_DRIVERS = frozenset({"sbs-battery"})
_LIVE_POLL_S = 0.1
_ASSUMED_UPDATE_S = 5.0
_POLL_S = 0.5

# All bits set, or a figure no machine on a battery draws: the controller has no value.
_IMPLAUSIBLE_W = 10_000.0

_CHARGERS = ("Mains", "USB", "Wireless")


class BatteryProbe:
    """Measures while every charger is off and a battery discharges; ``select`` takes one battery by name."""

    name = "battery"

    def __init__(self, read: Reader = read_text, clock: Callable[[], float] = time.monotonic) -> None:
        self._read, self._clock = read, clock

    def availability(self, options: ProbeOptions) -> Availability:
        """Say whether a battery discharges now, or why there is nothing to measure."""
        return availability_of(lambda: f"{', '.join(self.reader(options)())} discharging")

    def open(self, options: ProbeOptions) -> PowerSampler:
        """Open the batteries of this machine.

        Raises:
            ProbeUnavailableError: no battery, none discharges, a charger is on, or a file cannot be read.
        """
        reader = self.reader(options)
        rails = tuple(Rail(name=folder.name, boundary="battery") for folder in reader.batteries)
        poll_s = _LIVE_POLL_S if _live(reader.batteries) else _POLL_S
        return PolledSampler(facts(reader.batteries), rails, reader, poll_s, clock=self._clock)

    def reader(self, options: ProbeOptions) -> BatteryReader:
        """Return what reads the batteries, once it has done so.

        Raises:
            ProbeUnavailableError: see `open`.
        """
        supplies = Path(options.sysfs_root) / "class/power_supply"
        found = [folder for folder in sorted(supplies.glob("*")) if _is_battery(folder, self._read)]
        wanted = [folder for folder in found if options.select in (None, folder.name)]
        if not found:
            raise RefusalError(self.name, f"no battery of this machine under {supplies}")
        if not wanted:
            names = ", ".join(f"'{folder.name}'" for folder in found)
            raise RefusalError(self.name, f"no battery '{options.select}'", f"select one of {names}")
        reader = BatteryReader(tuple(wanted), supplies, self._read)
        with refusing(self.name):
            reader()
        return reader


class BatteryReader:
    """Reads the watts every battery gives."""

    def __init__(self, batteries: tuple[Path, ...], supplies: Path, read: Reader = read_text) -> None:
        self.batteries, self._supplies, self._read = batteries, supplies, read

    def __call__(self) -> dict[str, float]:
        """Return watts by battery.

        Raises:
            ProbeReadError: a charger is on, no battery discharges, or one gives no figure.
        """
        self._check_chargers()
        states = {folder.name: text_or_empty(folder / "status", self._read) or "Unknown" for folder in self.batteries}
        if "Discharging" not in states.values():
            said = ", ".join(f"{name} is '{state}'" for name, state in states.items())
            raise UnreadableError(f"{said}: only a discharging battery shows what the machine draws", _UNPLUG)
        power_w = {folder.name: self._watts(folder, states[folder.name]) for folder in self.batteries}
        if sum(power_w.values()) == 0:
            raise UnreadableError("the battery says 0 W while it discharges: it has no figure (yet)")
        return power_w

    def _check_chargers(self) -> None:
        for folder in sorted(self._supplies.glob("*")):
            if text_or_empty(folder / "type", self._read) not in _CHARGERS:
                continue
            # USB ports report online = 2 and 3 for fixed and programmable supplies.
            if text_or_empty(folder / "online", self._read) not in ("", "0"):
                raise UnreadableError(f"a charger is connected ({folder.name} is online)", _UNPLUG)

    def _watts(self, folder: Path, status: str) -> float:
        power_w = _power_w(folder, self._read)
        if status != "Discharging" and power_w != 0:
            # Two batteries discharge in turn; the one that rests must really rest.
            raise UnreadableError(f"{folder.name} is '{status}' yet reads {power_w:g} W", _UNPLUG)
        if power_w > _IMPLAUSIBLE_W:
            raise UnreadableError(f"{folder.name} reads {power_w:g} W, which no battery gives")
        return power_w


_UNPLUG = "unplug the charger"


def facts(batteries: tuple[Path, ...]) -> ProbeFacts:
    """Say what is known about the figures of these batteries."""
    live = _live(batteries)
    update_s = _LIVE_POLL_S if live else _ASSUMED_UPDATE_S
    how = "read from the gauge at each poll" if live else f"update interval not stated, {update_s:g} s assumed"
    return ProbeFacts(
        name="battery",
        boundary="battery",
        provenance="measured",
        update_interval_s=update_s,
        note=f"the whole machine, screen included; {how}",
    )


def _live(batteries: tuple[Path, ...]) -> bool:
    return all((folder / "device/driver").resolve().name in _LIVE_DRIVERS for folder in batteries)


def _is_battery(folder: Path, read: Reader) -> bool:
    """Say whether a supply is a battery that feeds this machine (a mouse's battery has scope Device)."""
    if text_or_empty(folder / "type", read) != "Battery" or text_or_empty(folder / "present", read) == "0":
        return False
    return text_or_empty(folder / "scope", read) != "Device"


def _power_w(folder: Path, read: Reader) -> float:
    if (folder / "power_now").exists():
        try:
            return abs(number(folder / "power_now", read)) * 1e-6
        except UnreadableError:
            # ACPI drivers show the file and answer ENODEV where firmware gives a current only.
            if not (folder / "current_now").exists():
                raise
    if not (folder / "current_now").exists():
        raise UnreadableError(f"{folder.name} gives neither power_now nor current_now")
    # µV times µA is 1e-12 W.
    return abs(number(folder / "voltage_now", read) * number(folder / "current_now", read)) * 1e-12


_: type[PowerProbe] = BatteryProbe
