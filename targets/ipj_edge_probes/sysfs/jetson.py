"""Power probe ``jetson``: the power monitors of NVIDIA Jetson modules, by label.

Labels and what holds what: NVIDIA Jetson Linux Developer Guide, "Software-Based Power Consumption Modeling".
Parts added to their total were jetson_stats#51.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from ipj_edge.energy.polling import PolledSampler
from ipj_edge.protocols import PowerProbe, PowerSampler
from ipj_edge.values import Availability, ProbeFacts, ProbeOptions, Rail
from ipj_edge_probes.refusal import RefusalError, UnreadableError, availability_of, refusing
from ipj_edge_probes.sysfs.hwmon_chip import Channel, chip_at, watts
from ipj_edge_probes.sysfs.read import Reader, number, read_text, text_or_empty

# The rail that feeds the whole module, and the rails it holds.
_TOTALS: dict[str, tuple[str, ...]] = {
    "POM_5V_IN": ("POM_5V_GPU", "POM_5V_CPU"),  # Nano, TX1, TX2
    "VDD_IN": ("VDD_CPU_GPU_CV", "VDD_SOC"),  # Xavier NX, Orin NX, Orin Nano
    "VIN": (),  # Thor
}

# Boards without such a rail: every rail of the set is needed for the sum.
_SUMS: dict[str, tuple[str, ...]] = {
    "AGX Orin": ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0", "VDDQ_VDD2_1V8AO"),
    "AGX Xavier": ("GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V"),
}

_SUM_NOTES = {
    "AGX Orin": "uncertain: VDDQ_VDD2_1V8AO may be fed from VIN_SYS_5V0 and then counts twice",
    "AGX Xavier": "incomplete: rails that are not monitored are missing",
}

_ASSUMED_UPDATE_S = 0.1
_POLL_S = 0.1
_DRIVERS = ("ina3221", "ina238")


class Sensor(msgspec.Struct, frozen=True, kw_only=True):
    """One labelled rail: a hwmon channel, or (JetPack 4) a file in mW."""

    label: str
    channel: Channel | None = None
    milliwatts: Path | None = None
    update_interval_s: float | None = None

    def watts(self, read: Reader) -> float:
        """Return the rail's power in watts.

        Raises:
            UnreadableError: the sensor gives no figure.
        """
        if self.channel is not None:
            return watts(self.channel, read)
        assert self.milliwatts is not None
        value = number(self.milliwatts, read)
        if value < 0:
            raise UnreadableError(f"{self.label} reads {value} mW: power flows backwards")
        return value * 1e-3


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """The rails to show and those to count.

    Attributes:
        sensors: By label.
        counted: Labels that are added.
        note: What is uncertain about them.
    """

    sensors: Mapping[str, Sensor]
    counted: tuple[str, ...]
    note: str


class JetsonProbe:
    """Measures the module; ``select`` takes one rail by its label instead."""

    name = "jetson"

    def __init__(self, read: Reader = read_text, clock: Callable[[], float] = time.monotonic) -> None:
        self._read, self._clock = read, clock

    def availability(self, options: ProbeOptions) -> Availability:
        """Say which rails make the module's total, or why there is none."""
        return availability_of(lambda: self._describe(options))

    def open(self, options: ProbeOptions) -> PowerSampler:
        """Open the module's power monitors.

        Raises:
            ProbeUnavailableError: no monitor, labels that are not known, or a rail that cannot be read.
        """
        board = self.board(options)
        reader = BoardReader(board, self._read)
        with refusing(self.name):
            reader()
        rails = tuple(Rail(name=label, boundary="module", counted=label in board.counted) for label in board.sensors)
        return PolledSampler(facts(board, options), rails, reader, _POLL_S, clock=self._clock)

    def board(self, options: ProbeOptions) -> Board:
        """Return the rails of this board, classified.

        Raises:
            ProbeUnavailableError: no monitor, or labels that are not known.
        """
        with refusing(self.name):
            sensors = find_sensors(Path(options.sysfs_root), self._read)
        if not sensors:
            raise RefusalError(self.name, f"no Jetson power monitor (INA3221, INA238) under {options.sysfs_root}")
        return classify(sensors, options.select)

    def _describe(self, options: ProbeOptions) -> str:
        board = self.board(options)
        with refusing(self.name):
            BoardReader(board, self._read)()
        parts = [label for label in board.sensors if label not in board.counted]
        said = f"{' + '.join(board.counted)} is the total"
        return said + (f"; shown beside it: {', '.join(parts)}" if parts else "")


class BoardReader:
    """Reads the watts of every rail."""

    def __init__(self, board: Board, read: Reader = read_text) -> None:
        self._board, self._read = board, read

    def __call__(self) -> dict[str, float]:
        """Return watts by label.

        Raises:
            ProbeReadError: a rail gives no figure.
        """
        return {label: sensor.watts(self._read) for label, sensor in self._board.sensors.items()}


def facts(board: Board, options: ProbeOptions) -> ProbeFacts:
    """Say what is known about the figures of a board."""
    stated = [sensor.update_interval_s for sensor in board.sensors.values() if sensor.update_interval_s]
    notes = [board.note, "the carrier board is not in it"]
    if not stated:
        notes.append(f"update interval not stated by the driver, {_ASSUMED_UPDATE_S:g} s assumed")
    return ProbeFacts(
        name="jetson",
        boundary="module" if options.select is None else "rails",
        provenance="measured",
        update_interval_s=max([_POLL_S, *stated]),
        note="; ".join(filter(None, notes)),
    )


def classify(sensors: Mapping[str, Sensor], select: str | None) -> Board:
    """Decide which rails make the total. A label that is not in the tables is shown and never counted.

    Raises:
        ProbeUnavailableError: no known total or sum, or no rail of the name selected.
    """
    if select is not None:
        if select not in sensors:
            raise RefusalError("jetson", f"no rail '{select}'", f"select one of {_quoted(sensors)}")
        return Board(sensors={select: sensors[select]}, counted=(select,), note=f"rail {select} alone")
    for total, parts in _TOTALS.items():
        if total in sensors:
            return Board(sensors=sensors, counted=(total,), note=_unknown_note(sensors, (total, *parts)))
    for board, labels in _SUMS.items():
        missing = [label for label in labels if label not in sensors]
        if missing and len(missing) < len(labels):
            raise RefusalError(
                "jetson",
                f"{', '.join(missing)} of {board} is missing, so its rails do not add up to the module",
                f"--select one rail: {_quoted(sensors)}",
            )
        if not missing:
            note = f"sum of the rails of {board}, {_SUM_NOTES[board]}"
            return Board(sensors=sensors, counted=labels, note="; ".join((note, _unknown_note(sensors, labels))))
    raise RefusalError(
        "jetson",
        f"no rail here is known to be the total: {_quoted(sensors)}",
        "--select one rail, if you know what it feeds",
    )


def find_sensors(root: Path, read: Reader = read_text) -> dict[str, Sensor]:
    """Return the labelled rails of every monitor: JetPack 5 and newer (hwmon), JetPack 4 (industrial I/O).

    Raises:
        UnreadableError: two rails have the same label.
    """
    sensors: dict[str, Sensor] = {}
    for sensor in (*_hwmon_sensors(root, read), *_iio_sensors(root, read)):
        if sensor.label in sensors:
            raise UnreadableError(f"two rails are labelled {sensor.label}: which is the module's is not known")
        sensors[sensor.label] = sensor
    return sensors


def _hwmon_sensors(root: Path, read: Reader) -> Iterator[Sensor]:
    listed = [*root.glob("class/hwmon/hwmon*"), *root.glob("bus/i2c/drivers/ina*/*/hwmon/hwmon*")]
    folders = {folder.resolve(): None for folder in sorted(listed) if folder.exists()}
    for folder in folders:
        if text_or_empty(folder / "name", read) not in _DRIVERS:
            continue
        chip = chip_at(folder, read)
        for channel in chip.channels:
            yield Sensor(label=channel.rail, channel=channel, update_interval_s=chip.update_interval_s)


def _iio_sensors(root: Path, read: Reader) -> Iterator[Sensor]:
    for file in sorted(root.glob("bus/i2c/drivers/ina3221x/*/iio:device*/rail_name_*")):
        label = text_or_empty(file, read)
        index = file.name.rpartition("_")[2]
        power = file.parent / f"in_power{index}_input"
        if label not in ("", "NC") and power.exists():
            yield Sensor(label=label, milliwatts=power)


def _unknown_note(sensors: Mapping[str, Sensor], known: tuple[str, ...]) -> str:
    unknown = [label for label in sensors if label not in known]
    return f"not classified and not counted: {', '.join(unknown)}" if unknown else ""


def _quoted(labels: Mapping[str, Sensor]) -> str:
    return ", ".join(f"'{label}'" for label in labels)


_: type[PowerProbe] = JetsonProbe
