"""Power probe ``hwmon``: power, energy and current monitors with a kernel driver (INA219, INA226, LTC4151, …)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from ipj_edge.energy.cadence import measure_update_interval_s
from ipj_edge.energy.polling import PolledSampler
from ipj_edge.protocols import EnergyCounter, PowerProbe, PowerSampler
from ipj_edge.values import Availability, Boundary, ProbeFacts, ProbeOptions, Provenance, Rail
from ipj_edge_probes.refusal import RefusalError, availability_of, refusing
from ipj_edge_probes.rising import RisingCounts
from ipj_edge_probes.sysfs.hwmon_chip import Channel, Chip, find_chips, joules, watts
from ipj_edge_probes.sysfs.read import Reader, read_text

# What a driver's chip covers, where that is more than the rails it happens to sit on.
_BOUNDARIES: dict[str, Boundary] = {
    "amdgpu": "gpu",
    "i915": "gpu",
    "xe": "gpu",
    "nouveau": "gpu",
    "power_meter": "wall",  # ACPI power meter: the input of the whole machine
    "amd_energy": "package",
    "fam15h_power": "package",
    "zenpower": "package",
}

# AMD's processors compute these figures, they do not sense them (arXiv 2108.00808).
_VENDOR_MODELLED = frozenset({"amd_energy", "fam15h_power"})

# Seconds between new values where no update_interval says so: what a driver keeps a value for, or what a chip
# takes that is asked at every read (INA2xx: 16 averages of 2 · 1.1 ms at the drivers' settings).
_HELD_S = {
    "ltc4151": 1 / 6,
    "ltc2947": 0.1,
    **dict.fromkeys(("xe", "i915", "amd_energy"), 0.001),
    **dict.fromkeys(("ina219", "ina220", "ina226", "ina230", "ina231", "ina260", "ina237", "ina238", "ina228"), 0.036),
}

_ASSUMED_UPDATE_S = 1.0
_POLL_LIMITS_S = (0.04, 0.1)
_WATCH_S = 1.0
_ASSUMED_NOTE = f"update interval not stated by the driver, {_ASSUMED_UPDATE_S:g} s assumed"
_KINDS = {"energy": "energy counter", "power": "power", "product": "voltage times current"}

Matches = list[tuple[Chip, tuple[Channel, ...]]]


class ChosenChannels(msgspec.Struct, frozen=True, kw_only=True):
    """The channels to measure, by rail name, and the chips they are on."""

    chips: tuple[Chip, ...]
    channels: dict[str, Channel]


class HwmonProbe:
    """Measures on chips under ``/sys/class/hwmon``; never on a battery's mirror there.

    ``select`` takes ``CHIP``, ``CHIP/RAIL`` or ``RAIL``, or several with commas between, which are added. Several
    chips are never added unasked: which of them feed one another is known to the board's maker only.
    """

    name = "hwmon"

    def __init__(
        self,
        read: Reader = read_text,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._read, self._clock, self._sleep = read, clock, sleep

    def availability(self, options: ProbeOptions) -> Availability:
        """Say which chip would be measured, or why none can be."""
        return availability_of(lambda: self._describe(options))

    def open(self, options: ProbeOptions) -> EnergyCounter | PowerSampler:
        """Open the chip, or what ``select`` names.

        Raises:
            ProbeUnavailableError: no chip with power, several and none selected, or one that cannot be read.
        """
        choice = self.choose(options)
        with refusing(self.name):
            if _kind(choice) == "energy":
                return FileCounter(facts(choice), choice.channels, read=self._read, clock=self._clock)
            read = PowerReader(choice.channels, self._read)
            read()
        known = self._watched(facts(choice), read) if _held_s(choice) is None else facts(choice)
        return PolledSampler(known, rails(choice.channels), read, poll_interval_s(choice), clock=self._clock)

    def _watched(self, assumed: ProbeFacts, read: PowerReader) -> ProbeFacts:
        """Watch a sensor that does not say how often it updates; a figure that stands still says nothing."""
        with refusing(self.name):
            update_s = measure_update_interval_s(
                lambda: sum(read().values()), timeout_s=_WATCH_S, clock=self._clock, sleep=self._sleep
            )
        if update_s is None:
            return assumed
        note = assumed.note.replace(_ASSUMED_NOTE, f"update interval watched when opened, {update_s:.3g} s")
        return msgspec.structs.replace(assumed, update_interval_s=max(update_s, _POLL_LIMITS_S[1]), note=note)

    def choose(self, options: ProbeOptions) -> ChosenChannels:
        """Return what these options measure.

        Raises:
            ProbeUnavailableError: no chip with power, several and none selected, or one that cannot be read.
        """
        with refusing(self.name):
            chips, hidden = _find(options, self._read)
        if options.select is not None:
            return select(chips, options.select)
        return _only_one(chips, hidden, options.sysfs_root)

    def _describe(self, options: ProbeOptions) -> str:
        choice = self.choose(options)
        with refusing(self.name):
            for channel in choice.channels.values():
                (joules if channel.kind == "energy" else watts)(channel, self._read)
        chips = ", ".join(chip.key for chip in choice.chips)
        return f"{chips}: {_KINDS[_kind(choice)]} of {', '.join(choice.channels)}"


class PowerReader:
    """Reads the watts of every rail."""

    def __init__(self, channels: dict[str, Channel], read: Reader = read_text) -> None:
        self._channels, self._read = channels, read

    def __call__(self) -> dict[str, float]:
        """Return watts by rail.

        Raises:
            ProbeReadError: one of them has no value.
        """
        return {rail: watts(channel, self._read) for rail, channel in self._channels.items()}


class FileCounter:
    """Energy counters of the kernel, in joules since they were opened."""

    def __init__(
        self, facts: ProbeFacts, channels: dict[str, Channel], *, read: Reader, clock: Callable[[], float]
    ) -> None:
        self.facts, self.rails = facts, rails(channels)
        self._channels, self._read, self._clock = channels, read, clock
        self._counts = RisingCounts(self._joules(), "it was reset (driver reload, suspend)")

    def read(self) -> tuple[float, dict[str, float]]:
        """Return (monotonic seconds, joules of every rail since it was opened).

        Raises:
            ProbeReadError: a counter cannot be read or went back.
        """
        return self._clock(), self._counts.since(self._joules())

    def close(self) -> None:
        """Do nothing: files are opened for each read."""

    def _joules(self) -> dict[str, float]:
        return {rail: joules(channel, self._read) for rail, channel in self._channels.items()}


def rails(channels: dict[str, Channel]) -> tuple[Rail, ...]:
    """Return the rails of a choice."""
    return tuple(Rail(name=rail, boundary="rails", counted=channel.counted) for rail, channel in channels.items())


def poll_interval_s(choice: ChosenChannels) -> float:
    """Return the seconds between two polls: twice a sensor's update, within what costs under 1 % of a core."""
    low, high = _POLL_LIMITS_S
    return min(max(_update_interval_s(choice)[0] / 2, low), high)


def facts(choice: ChosenChannels) -> ProbeFacts:
    """Say what is known about the figures of a choice."""
    update_s, update_note = _update_interval_s(choice)
    counter = _kind(choice) == "energy"
    errors = [channel.error for channel in choice.channels.values() if channel.error is not None]
    return ProbeFacts(
        name="hwmon",
        boundary=_boundary(choice.chips),
        provenance=_provenance(choice.chips),
        update_interval_s=update_s if counter else max(update_s, poll_interval_s(choice)),
        quantum_j=1e-6 if counter else 0.0,
        accuracy=max(errors) if errors else None,
        note="; ".join(filter(None, (_source_note(choice), update_note, *_warnings(choice)))),
    )


def select(chips: Sequence[Chip], wanted: str) -> ChosenChannels:
    """Return what a user selected; several, with commas between, are added.

    Raises:
        ProbeUnavailableError: nothing, or more than one thing, has that name; or counters and power are mixed.
    """
    found: dict[str, tuple[Chip, tuple[Channel, ...]]] = {}
    for word in filter(None, (part.strip() for part in wanted.split(","))):
        for chip, channels in _matches(chips, word):
            found[chip.key] = (chip, (*found.get(chip.key, (chip, ()))[1], *channels))
    several = len(found) > 1
    by_rail = {
        f"{chip.key}/{channel.rail}" if several else channel.rail: channel
        for chip, channels in found.values()
        for channel in channels
    }
    if len({channel.kind == "energy" for channel in by_rail.values()}) != 1:
        raise RefusalError("hwmon", f"'{wanted}' mixes energy counters with power", f"select one of {_list(chips)}")
    return ChosenChannels(chips=tuple(chip for chip, _ in found.values()), channels=by_rail)


def _matches(chips: Sequence[Chip], word: str) -> Matches:
    by_chip: Matches = [(chip, chip.channels) for chip in chips if word in (chip.key, chip.name, chip.place)]
    by_rail: Matches = [
        # One rail alone is counted, whatever else its chip has.
        (chip, (msgspec.structs.replace(channel, counted=True),))
        for chip in chips
        for channel in chip.channels
        if word in (channel.rail, f"{chip.key}/{channel.rail}", f"{chip.name}/{channel.rail}")
    ]
    found = by_chip or by_rail
    if len(found) != 1:
        what = "names several" if found else "names nothing"
        raise RefusalError("hwmon", f"--select '{word}' {what}", f"select one of {_list(chips)}")
    if not found[0][1]:
        raise RefusalError("hwmon", *_off(found[0][0]))
    return found


def _list(chips: Sequence[Chip]) -> str:
    names = []
    for chip in chips:
        names.append(chip.key)
        if len(chip.channels) > 1:
            names += [f"{chip.key}/{channel.rail}" for channel in chip.channels]
    return ", ".join(f"'{name}'" for name in names) or "nothing: no chip carries power"


def _find(options: ProbeOptions, read: Reader) -> tuple[tuple[Chip, ...], int]:
    return find_chips(Path(options.sysfs_root), read)


def _only_one(chips: Sequence[Chip], hidden: int, root: str) -> ChosenChannels:
    live = [chip for chip in chips if chip.channels]
    if len(live) == 1:
        chip = live[0]
        return ChosenChannels(chips=(chip,), channels={channel.rail: channel for channel in chip.channels})
    if len(live) > 1:
        raise RefusalError(
            "hwmon",
            f"{len(live)} chips carry power and may feed one another, so they are not added",
            f"choose with --select: {_list(live)}",
        )
    if chips:
        raise RefusalError("hwmon", *_off(chips[0]))
    if hidden:
        raise RefusalError(
            "hwmon",
            f"{hidden} chips are listed under {root}/class/hwmon but their folders are hidden (container)",
            "mount the host's /sys and pass it with --sysfs-root",
        )
    raise RefusalError("hwmon", f"no chip under {root}/class/hwmon gives power, energy, or voltage with current")


def _off(chip: Chip) -> tuple[str, str]:
    return (
        f"every channel of {chip.key} is switched off ({', '.join(chip.switched_off)})",
        f"write 1 to the _enable files in {chip.folder}",
    )


def _kind(choice: ChosenChannels) -> str:
    return next(iter(choice.channels.values())).kind


def _boundary(chips: Sequence[Chip]) -> Boundary:
    boundaries = {_BOUNDARIES.get(chip.name, "rails") for chip in chips}
    return boundaries.pop() if len(boundaries) == 1 else "rails"


def _provenance(chips: Sequence[Chip]) -> Provenance:
    modelled = {chip.name in _VENDOR_MODELLED for chip in chips}
    if modelled == {False}:
        return "measured"
    return "vendor-modelled" if modelled == {True} else "mixed"


def _update_interval_s(choice: ChosenChannels) -> tuple[float, str]:
    held_s = _held_s(choice)
    return (_ASSUMED_UPDATE_S, _ASSUMED_NOTE) if held_s is None else (held_s, "")


def _held_s(choice: ChosenChannels) -> float | None:
    """Return the seconds between new values of the slowest chip; None when one of them does not say."""
    stated = [chip.update_interval_s or _HELD_S.get(chip.name) for chip in choice.chips]
    known = [value for value in stated if value is not None]
    return max(known) if len(known) == len(stated) else None


def _source_note(choice: ChosenChannels) -> str:
    return f"{_KINDS[_kind(choice)]} of {', '.join(chip.key for chip in choice.chips)}"


def _warnings(choice: ChosenChannels) -> list[str]:
    notes = [
        f"{', '.join(chip.switched_off)} of {chip.key} switched off and not in the figure"
        for chip in choice.chips
        if chip.switched_off
    ]
    counted = [rail for rail, channel in choice.channels.items() if channel.counted]
    if len(counted) > 1:
        notes.append(f"sum of {', '.join(counted)}: too high if one of them feeds another; --select takes one")
    return notes


_: type[PowerProbe] = HwmonProbe
