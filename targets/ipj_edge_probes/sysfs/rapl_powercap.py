"""RAPL through the powercap files (Linux ``Documentation/power/powercap/powercap.rst``).

Zones are known by their ``name`` file only: ``psys`` often sits where a second package would.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from ipj_edge.errors import ProbeReadError, ProbeUnavailableError
from ipj_edge.values import Availability, ProbeFacts, Rail
from ipj_edge_probes.sysfs.rapl_route import MAX_POWER_W, facts, rail_boundary

# Room for one update of the counter to show up between two reads that lie closer together than it.
_SLACK_S = 0.1


class Zone(msgspec.Struct, frozen=True, kw_only=True):
    """One RAPL zone.

    Attributes:
        rail: Name within the machine, e.g. ``package-0``, ``dram-0``, ``core-1``.
        package: Name of the package zone it is or belongs to; its own for psys.
        energy: The file of its counter.
        range_j: Where its counter wraps, in joules; 0 when the kernel does not say.
        is_mmio: Whether it is the same register seen through memory-mapped I/O.
    """

    rail: str
    package: str
    energy: Path
    range_j: float
    is_mmio: bool


class PowercapRoute:
    """The zones below ``class/powercap`` of a sysfs root."""

    def __init__(self, sysfs: Path) -> None:
        self._sysfs = sysfs
        self._folder = sysfs / "class/powercap"

    def availability(self) -> Availability:
        """Say whether every zone that counts may be read."""
        try:
            zones = self._zones()
        except ProbeUnavailableError as error:
            return Availability(available=False, reason=str(error), fix=self._remedy_of_absence())
        refused = [zone.rail for zone in zones if _counts(zone) and not _may_read(zone.energy)]
        if refused:
            return Availability(
                available=False,
                reason=f"RAPL is present but not permitted: the counters of {', '.join(refused)} are root's "
                "(since Linux 5.10, CVE-2020-8694)",
                fix=f"sudo chmod a+r {self._folder}/intel-rapl*:*/energy_uj (until reboot)",
            )
        return Availability(available=True, reason=f"powercap: {', '.join(zone.rail for zone in zones)}")

    def open(self) -> PowercapCounter:
        """Open every zone that may be read.

        Raises:
            ProbeUnavailableError: no zones, or one that counts may not be read.
        """
        state = self.availability()
        if not state.available:
            raise ProbeUnavailableError(f"{state.reason}; fix: {state.fix}" if state.fix else state.reason)
        # A part that cannot be read is left out; the package's own figure is as good without it.
        zones = [zone for zone in self._zones() if _counts(zone) or _gives_a_number(zone.energy)]
        mirrored = mirrored_dies(zones)
        kept = [zone for zone in zones if zone.package not in mirrored]
        notes = [f"{', '.join(sorted(mirrored))} left out: mirrors of the same socket's counter"] if mirrored else []
        ranges = [zone.range_j for zone in kept if zone.range_j > 0]
        return PowercapCounter(
            kept,
            facts(
                self._sysfs,
                # The register has 32 bits: its step is the range divided by their number.
                quantum_j=max(ranges, default=0.0) / (2**32 - 1),
                heartbeat_s=min(ranges) / (2 * MAX_POWER_W) if ranges else None,
                notes=notes,
            ),
        )

    def _zones(self) -> list[Zone]:
        """Return every zone once, the MSR one where MMIO repeats it.

        Raises:
            ProbeUnavailableError: there are none, with the reason.
        """
        entries = self._entries()
        masked = [entry for entry in entries if not entry.exists()]
        if masked and len(masked) == len(entries):
            raise ProbeUnavailableError(
                "RAPL is masked: the powercap links lead nowhere, as in a Docker or containerd container"
            )
        labels = {entry.name: _text(entry / "name") for entry in entries if ":" in entry.name}
        zones: dict[str, Zone] = {}
        # MSR zones come first, so that they are the ones kept.
        for name in sorted((key for key, label in labels.items() if label), key=lambda key: ("mmio" in key, key)):
            zone = _zone(self._folder / name, labels)
            zones.setdefault(zone.rail, zone)
        if not zones:
            raise ProbeUnavailableError(f"no RAPL zones in {self._folder}: not an x86 machine, or a virtual one")
        return sorted(zones.values(), key=lambda zone: (not _counts(zone), zone.rail))

    def _entries(self) -> list[Path]:
        try:
            return [entry for entry in self._folder.iterdir() if entry.name.startswith("intel-rapl")]
        except OSError:
            return []

    def _remedy_of_absence(self) -> str:
        if any(not entry.exists() for entry in self._entries()):
            return "run the container with -v /sys:/host/sys:ro and give --sysfs-root /host/sys"
        return ""


class PowercapCounter:
    """The joules of RAPL zones since it was opened, wraps undone.

    The files stay open, and all arithmetic is in whole microjoules. A first read is only the baseline: the
    absolute value of a counter means nothing.
    """

    def __init__(
        self,
        zones: Sequence[Zone],
        probe_facts: ProbeFacts,
        *,
        pread: Callable[[int, int, int], bytes] = os.pread,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.facts = probe_facts
        self.rails = tuple(_rail(zone) for zone in zones)
        self._names = [zone.rail for zone in zones]
        self._ranges_uj = [round(zone.range_j * 1e6) for zone in zones]
        self._pread, self._clock = pread, clock
        self._files: list[int] = []
        try:
            for zone in zones:
                self._files.append(os.open(zone.energy, os.O_RDONLY | os.O_CLOEXEC))
            self._last_s, self._last_uj = self._sample()
        except (OSError, ProbeReadError) as error:
            self.close()
            raise ProbeUnavailableError(f"RAPL cannot be read: {error}") from error
        self._totals_uj = [0] * len(zones)

    def read(self) -> tuple[float, dict[str, float]]:
        """Return (monotonic seconds, joules of every zone since the counter was opened).

        Raises:
            ProbeReadError: a zone cannot be read, was not read for so long that a wrap may have been missed, or
                moved in a way no power explains. The count goes on from there, so that later windows are good.
        """
        now_s, values = self._sample()
        elapsed_s, last = now_s - self._last_s, self._last_uj
        self._last_s, self._last_uj = now_s, values
        for index, value in enumerate(values):
            self._totals_uj[index] += self._step(index, last[index], value, elapsed_s)
        return now_s, {name: total * 1e-6 for name, total in zip(self._names, self._totals_uj, strict=True)}

    def close(self) -> None:
        """Close the files."""
        files, self._files = self._files, []
        for file in files:
            os.close(file)

    def _sample(self) -> tuple[float, list[int]]:
        pread = self._pread
        try:
            return self._clock(), [int(pread(file, 32, 0)) for file in self._files]
        except (OSError, ValueError) as error:
            raise ProbeReadError(f"{self._failing_zone()}: {error}") from error

    def _failing_zone(self) -> str:
        """Name the zone that cannot be read, outside of the fast path."""
        for name, file in zip(self._names, self._files, strict=False):
            try:
                int(self._pread(file, 32, 0))
            except (OSError, ValueError):
                return name
        return "a zone"

    def _step(self, index: int, last: int, value: int, elapsed_s: float) -> int:
        name, range_uj = self._names[index], self._ranges_uj[index]
        step = value - last
        if step < 0:
            if range_uj <= last:
                raise ProbeReadError(
                    f"{name} fell from {last} to {value} µJ and the kernel does not say where it wraps"
                )
            step += range_uj
        if range_uj and elapsed_s > range_uj * 1e-6 / MAX_POWER_W:
            raise ProbeReadError(f"{name} was not read for {elapsed_s:.0f} s and may have wrapped unseen")
        if step > MAX_POWER_W * 1e6 * (elapsed_s + _SLACK_S):
            raise ProbeReadError(
                f"{name} moved by {step * 1e-6:.0f} J in {elapsed_s:.3g} s, more than any processor draws: it was reset"
            )
        return step


def mirrored_dies(zones: Sequence[Zone], wait: Callable[[float], None] = time.sleep) -> set[str]:
    """Return the packages (``package-N-die-D``) whose counter is the same register as an earlier die's.

    Zen 1 and 2 and some Epyc show one zone a die, all with the socket's counter; adding them multiplies the
    figure. A mirror's value lies between two reads of the other's, twice; with counters of 32 bits that does not
    happen by chance.
    """
    dies: dict[str, list[Zone]] = {}
    for zone in zones:
        socket, is_die, _ = zone.package.partition("-die-")
        if is_die and zone.rail == zone.package:
            dies.setdefault(socket, []).append(zone)
    mirrored = {die.package for first, *others in dies.values() for die in others if _mirrors(first, die)}
    if not mirrored:
        return mirrored
    wait(0.01)
    return {die.package for first, *others in dies.values() for die in others if _mirrors(first, die)} & mirrored


def _mirrors(first: Zone, other: Zone) -> bool:
    before, between, after = (_microjoules(zone.energy) for zone in (first, other, first))
    return before <= between <= after


def _zone(folder: Path, labels: dict[str, str]) -> Zone:
    label = labels[folder.name]
    parent = labels.get(folder.name.rpartition(":")[0], "")
    package = parent or label
    # "package-1" → "-1", "package-0-die-1" → "-0-die-1": a part is named after the package it belongs to.
    rail = label + parent.removeprefix("package")
    return Zone(
        rail=rail,
        package=package,
        energy=folder / "energy_uj",
        range_j=_range_j(folder / "max_energy_range_uj"),
        is_mmio="mmio" in folder.name,
    )


def _rail(zone: Zone) -> Rail:
    boundary, counted = rail_boundary(zone.rail)
    return Rail(name=zone.rail, boundary=boundary, counted=counted)


def _counts(zone: Zone) -> bool:
    return rail_boundary(zone.rail)[1]


def _may_read(path: Path) -> bool:
    """Try to read: mode bits say nothing to root or to a process with CAP_DAC_READ_SEARCH."""
    try:
        path.read_bytes()
    except PermissionError:
        return False
    except OSError:
        return True  # there, but failing: opening it says how
    return True


def _gives_a_number(path: Path) -> bool:
    try:
        int(path.read_text())
    except (OSError, ValueError):
        return False
    return True


def _microjoules(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError) as error:
        raise ProbeUnavailableError(f"RAPL cannot be read: {path}: {error}") from error


def _range_j(path: Path) -> float:
    try:
        return int(path.read_text()) * 1e-6
    except (OSError, ValueError):
        return 0.0


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
