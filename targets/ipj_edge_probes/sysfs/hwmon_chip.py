"""Hardware monitor chips in sysfs: which carry power, on which files, and how these become watts or joules.

Files and units are the kernel's hwmon ABI (Documentation/hwmon/sysfs-interface.rst); the rules for single chips
come from their pages in Documentation/hwmon (ina2xx, ina238, ina3221, ltc2947, powerz).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from ipj_edge_probes.refusal import UnreadableError
from ipj_edge_probes.sysfs.read import Reader, number, read_text, text_or_empty

ChannelKind = Literal["energy", "power", "product"]

# ACPI power meters (0xFFFFFFFF mW) and 32-bit registers say "no value" with all bits set (lm-sensors#460, #130).
_NO_VALUE = frozenset({4294967295000, 4294967295, 0x7FFFFFFF_000, 0x7FFFFFFF})

_ONE_RAIL_CHIPS = (
    *(
        "ina209",
        "ina219",
        "ina220",
        "ina226",
        "ina228",
        "ina230",
        "ina231",
        "ina234",
        "ina237",
        "ina238",
        "ina260",
    ),
    *("ltc2945", "ltc4151", "sq52206"),
)

# Voltage channel of each current channel where only some are a pair, or their indices differ.
_PAIRS: dict[str, dict[int, int]] = {
    # in4..6 are shunt voltages, in7 and curr4 sums: only 1..3 are a bus voltage with its current.
    "ina3221": {1: 1, 2: 2, 3: 3},
    "ltc2947": {1: 0},
    "powerz": {1: 0},
    **{chip: {1: 1} for chip in _ONE_RAIL_CHIPS},
}

# Both energy banks of the LTC2947 count the same rail, the second under conditions its user sets.
_ENERGY_CHANNELS: dict[str, tuple[int, ...]] = {"ltc2947": (1,)}

# Rails that hold the other rails of their chip: Jetson module inputs, PMBus inputs, an Intel card with its
# package, an AMD socket with its cores, the sum of a PSU's outputs.
_WHOLE = re.compile(r"VDD_IN|POM_5V_IN|VIN|[pi]in\d*|card|Esocket\d+|power total|Total System Power")

# An idle rail reads a step or two below zero (INA3221: 8 mA over 5 mOhm); more than this is current flowing back.
_ZERO_A, _ZERO_W = 0.025, 0.05

_PMBUS_CURRENT = re.compile(r"i(in|out)\d*")


class Channel(msgspec.Struct, frozen=True, kw_only=True):
    """One thing a chip measures.

    Attributes:
        rail: Label, or a name made from the file.
        kind: ``energy`` counts µJ, ``power`` gives µW, ``product`` is mV times mA.
        files: The file, or voltage and current.
        counted: False when another rail of the chip holds it.
        error: Relative error its driver states; None without.
    """

    rail: str
    kind: ChannelKind
    files: tuple[Path, ...]
    counted: bool = True
    error: float | None = None


class Chip(msgspec.Struct, frozen=True, kw_only=True):
    """A chip that carries power.

    Attributes:
        name: The driver's name for it.
        place: Its device, e.g. ``1-0040`` or a PCI address: stays the same over reboots, as ``hwmonN`` does not.
        folder: Where its files are.
        channels: What it measures, all of one kind.
        switched_off: Labels of channels that are disabled.
        update_interval_s: How often its values change; None where nothing says so.
    """

    name: str
    place: str
    folder: Path
    channels: tuple[Channel, ...]
    switched_off: tuple[str, ...] = ()
    update_interval_s: float | None = None

    @property
    def key(self) -> str:
        """Name and place: what a user selects it by."""
        return f"{self.name}@{self.place}" if self.place else self.name


def find_chips(root: Path, read: Reader = read_text) -> tuple[tuple[Chip, ...], int]:
    """Return the chips that carry power, and how many chips are listed but hidden (dangling links)."""
    listed = sorted((root / "class/hwmon").glob("hwmon*"), key=_number_of)
    hidden = sum(not folder.exists() for folder in listed)
    supplies = _supply_names(root)
    chips = []
    for folder in listed:
        if not folder.exists() or mirrors_a_supply(folder, supplies, read):
            continue
        chip = chip_at(folder, read)
        if chip.channels or chip.switched_off:
            chips.append(chip)
    return tuple(chips), hidden


def chip_at(folder: Path, read: Reader = read_text) -> Chip:
    """Describe the chip of one hwmon folder."""
    if not (folder / "name").exists() and (folder / "device/name").exists():
        folder = folder / "device"  # drivers of before Linux 3.13 keep their files there
    name = text_or_empty(folder / "name", read)
    live: list[Channel] = []
    switched_off: list[Channel] = []
    for channel in _first_kind(folder, name, read):
        (switched_off if _switched_off(channel, read) else live).append(channel)
    return Chip(
        name=name,
        place=_place(folder),
        folder=folder,
        channels=_count_once(live),
        switched_off=tuple(channel.rail for channel in switched_off),
        update_interval_s=_update_interval_s(folder, read),
    )


def watts(channel: Channel, read: Reader = read_text) -> float:
    """Return the watts of a power or product channel.

    Raises:
        UnreadableError: no value, or power that flows backwards.
    """
    values = [number(path, read) for path in channel.files]
    for path, value in zip(channel.files, values, strict=True):
        if value in _NO_VALUE:
            raise UnreadableError(f"{path} says {value}, the sensor's mark for 'no value'")
    # µW, or mV times mA: both are 1e-6 W.
    power_w = (values[0] if channel.kind == "power" else values[0] * values[1]) * 1e-6
    if values[-1] * 1e-6 < -_ZERO_W if channel.kind == "power" else values[-1] * 1e-3 < -_ZERO_A:
        raise UnreadableError(
            f"{channel.rail} reads {power_w:g} W: power flows backwards through {channel.files[-1]}",
            "turn the shunt's leads, or select a rail that feeds the load",
        )
    return max(0.0, power_w)


def joules(channel: Channel, read: Reader = read_text) -> float:
    """Return what an energy channel's counter says, in joules.

    Raises:
        UnreadableError: no value.
    """
    return number(channel.files[0], read) * 1e-6


def mirrors_a_supply(folder: Path, supplies: frozenset[str], read: Reader = read_text) -> bool:
    """Say whether a hwmon folder only repeats a power supply (a battery, a USB port), as every supply has one.

    A battery is measured by the probe for batteries, which knows whether it is charging.
    """
    device = folder / "device"
    if device.exists():
        subsystem = device / "subsystem"
        if subsystem.exists() and subsystem.resolve().name == "power_supply":
            return True
        if device.resolve().parent.name == "power_supply":
            return True
    # The mirror's name is the supply's with '-' made '_' (drivers/power/supply/power_supply_hwmon.c).
    return text_or_empty(folder / "name", read) in supplies


def _supply_names(root: Path) -> frozenset[str]:
    names = [folder.name for folder in (root / "class/power_supply").glob("*")]
    return frozenset(names) | frozenset(name.replace("-", "_") for name in names)


def _number_of(folder: Path) -> int:
    return int("".join(filter(str.isdigit, folder.name)) or 0)


def _place(folder: Path) -> str:
    device = folder if folder.name == "device" else folder / "device"
    return device.resolve().name if device.exists() else ""


def _first_kind(folder: Path, name: str, read: Reader) -> tuple[Channel, ...]:
    """Return the channels of the best kind there is: a counter before power before voltage times current."""
    for kind in (_energy_channels, _power_channels, _product_channels):
        channels = tuple(kind(folder, name, read))
        if channels:
            return channels
    return ()


def _indices(folder: Path, kind: str, suffix: str) -> list[int]:
    pattern = re.compile(rf"{kind}(\d+)_{suffix}")
    return sorted(int(found[1]) for path in folder.iterdir() if (found := pattern.fullmatch(path.name)))


def _label(folder: Path, channel: str, read: Reader) -> str:
    return text_or_empty(folder / f"{channel}_label", read)


def _energy_channels(folder: Path, name: str, read: Reader) -> Iterator[Channel]:
    for index in _indices(folder, "energy", "input"):
        if index in _ENERGY_CHANNELS.get(name, (index,)):
            rail = _label(folder, f"energy{index}", read) or f"energy{index}"
            yield Channel(rail=rail, kind="energy", files=(folder / f"energy{index}_input",))


def _power_channels(folder: Path, name: str, read: Reader) -> Iterator[Channel]:
    instant = _indices(folder, "power", "input")
    for index in sorted({*instant, *_indices(folder, "power", "average")}):
        # A chip that labels only the voltage of a rail (INA238 on Jetson Thor) means the same rail.
        rail = _label(folder, f"power{index}", read) or _label(folder, f"in{index}", read) or f"power{index}"
        file = folder / (f"power{index}_input" if index in instant else f"power{index}_average")
        error = _stated_error(text_or_empty(folder / f"power{index}_accuracy", read))
        if rail != "NC":
            yield Channel(rail=rail, kind="power", files=(file,), error=error)


def _product_channels(folder: Path, name: str, read: Reader) -> Iterator[Channel]:
    for index in _indices(folder, "curr", "input"):
        pair = _voltage_index(folder, name, index, read)
        if pair is None or not (folder / f"in{pair}_input").exists():
            continue
        voltage_label, current_label = _label(folder, f"in{pair}", read), _label(folder, f"curr{index}", read)
        if "shunt" in voltage_label.lower() or "NC" in (voltage_label, current_label):
            continue
        rail = current_label or voltage_label or f"in{pair}*curr{index}"
        # INA3221 drivers label the voltage; the label of a current may then say no more than "Current 1".
        rail = voltage_label if name == "ina3221" and voltage_label else rail
        yield Channel(rail=rail, kind="product", files=(folder / f"in{pair}_input", folder / f"curr{index}_input"))


def _voltage_index(folder: Path, name: str, index: int, read: Reader) -> int | None:
    """Return the voltage channel that belongs to a current channel, or None."""
    if name in _PAIRS:
        return _PAIRS[name].get(index)
    label = _label(folder, f"curr{index}", read)
    if not _PMBUS_CURRENT.fullmatch(label):
        return index
    # PMBus numbers voltages and currents apart (vout1 is in2 or in3, iout1 curr1 or curr2): its labels pair them.
    for voltage in _indices(folder, "in", "input"):
        if _label(folder, f"in{voltage}", read) == "v" + label[1:]:
            return voltage
    return None


def _switched_off(channel: Channel, read: Reader) -> bool:
    return any(text_or_empty(Path(re.sub(r"_\w+$", "_enable", str(path))), read) == "0" for path in channel.files)


def _count_once(channels: list[Channel]) -> tuple[Channel, ...]:
    """Give every rail a name of its own; where one holds the others, count only that one."""
    wholes = [channel for channel in channels if _WHOLE.fullmatch(channel.rail)]
    labels = [channel.rail for channel in channels]
    counted = []
    for channel in channels:
        unique = labels.count(channel.rail) == 1
        rail = channel.rail if unique else f"{channel.rail} ({channel.files[-1].name.partition('_')[0]})"
        counted.append(msgspec.structs.replace(channel, rail=rail, counted=not wholes or channel in wholes))
    return tuple(counted)


def _stated_error(text: str) -> float | None:
    """Return the relative error behind a ``powerN_accuracy``.

    ACPI states how accurate a meter is ("95.0%" is ±5 %, ACPI 6.5 section 10.4.1); a driver that states the error
    itself gives a small figure.
    """
    try:
        percent = float(text.rstrip("% \n"))
    except ValueError:
        return None
    if not 0 < percent < 100:
        return None
    return (100 - percent) / 100 if percent > 50 else percent / 100


def _update_interval_s(folder: Path, read: Reader) -> float | None:
    stated = [folder / "update_interval", *sorted(folder.glob("power*_average_interval"))]
    found = [int(text) * 1e-3 for path in stated if (text := text_or_empty(path, read)).isdigit() and int(text) > 0]
    return max(found) if found else None
