"""RAPL through perf events (``/sys/bus/event_source/devices/power``): the kernel keeps a 64-bit count, wraps
undone.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from ipj_edge.errors import ProbeReadError, ProbeUnavailableError
from ipj_edge.values import Availability, ProbeFacts, Rail
from ipj_edge_probes.sysfs.rapl_route import facts, is_amd, rail_boundary

# arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h
_SYSCALL = {"x86_64": 298, "aarch64": 241}
_CLOEXEC = 8
_EVENTS = {"pkg": "package", "ram": "dram", "cores": "core", "gpu": "uncore", "psys": "psys"}

# The events scale to 2^-32 J, but the register behind them steps by 2^-14 J where powercap does not say
# otherwise.
_STEP_J = 2.0**-14


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One energy event on one CPU.

    Attributes:
        rail: Name of the rail, e.g. ``dram-1``.
        kind: perf type of the event source.
        config: perf code of the event.
        cpu: The CPU that answers for the package.
        scale_j: Joules of one count.
    """

    rail: str
    kind: int
    config: int
    cpu: int
    scale_j: float


def open_event(event: Event) -> int:
    """Open a perf event for the whole machine and return its file descriptor.

    Raises:
        OSError: not permitted, or no such event.
    """
    # struct perf_event_attr, its first published size of 64 bytes: type, size, config, then zeros.
    attributes = struct.pack("=IIQ48x", event.kind, 64, event.config)
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(f"perf events are not known on {platform.machine()}")
    libc = ctypes.CDLL(None, use_errno=True)
    every_process = ctypes.c_int(-1)
    no_group = ctypes.c_int(-1)
    file = int(
        libc.syscall(
            ctypes.c_long(number),
            attributes,
            every_process,
            ctypes.c_int(event.cpu),
            no_group,
            ctypes.c_ulong(_CLOEXEC),
        )
    )
    if file < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return file


class PerfRoute:
    """The event source ``power`` below a sysfs root."""

    def __init__(self, sysfs: Path, opener: Callable[[Event], int] = open_event) -> None:
        self._sysfs, self._opener = sysfs, opener
        self._folder = sysfs / "bus/event_source/devices/power"

    def availability(self) -> Availability:
        """Say whether an energy event may be opened."""
        try:
            events, _ = self._events()
            os.close(self._opener(events[0]))
        except PermissionError:
            return Availability(
                available=False,
                reason="perf's energy events are not permitted",
                fix="sudo sysctl kernel.perf_event_paranoid=0",
            )
        except (OSError, ProbeUnavailableError) as error:
            return Availability(available=False, reason=str(error))
        return Availability(available=True, reason=f"perf: {', '.join(event.rail for event in events)}")

    def open(self) -> PerfCounter:
        """Open every energy event.

        Raises:
            ProbeUnavailableError: no events, or not permitted.
        """
        events, notes = self._events()
        probe_facts = facts(self._sysfs, quantum_j=_STEP_J, heartbeat_s=None, notes=["by perf events", *notes])
        return PerfCounter(events, probe_facts, self._opener)

    def _events(self) -> tuple[list[Event], list[str]]:
        try:
            kind = int((self._folder / "type").read_text())
            cpus = _cpu_list((self._folder / "cpumask").read_text())
        except (OSError, ValueError) as error:
            raise ProbeUnavailableError("perf has no energy events here") from error
        places = {cpu: self._place(cpu) for cpu in cpus}
        kept, notes = self._without_mirrors(places)
        events = [
            Event(rail=rail + kept[cpu], kind=kind, config=config, cpu=cpu, scale_j=scale_j)
            for rail, config, scale_j in self._kinds()
            for cpu in kept
        ]
        if not any(rail_boundary(event.rail)[1] for event in events):
            raise ProbeUnavailableError("perf has no energy events here")
        return sorted(events, key=lambda event: (not rail_boundary(event.rail)[1], event.rail)), notes

    def _kinds(self) -> list[tuple[str, int, float]]:
        """Return rail name, event code and joules a count of each event the kernel offers in joules."""
        kinds = []
        for suffix, rail in _EVENTS.items():
            event = self._folder / "events" / f"energy-{suffix}"
            try:
                code = int(event.read_text().strip().partition("event=")[2], 16)
                unit = event.with_name(f"{event.name}.unit").read_text().strip()
                scale_j = float(event.with_name(f"{event.name}.scale").read_text())
            except (OSError, ValueError):
                continue
            if unit == "Joules":
                kinds.append((rail, code, scale_j))
        return kinds

    def _place(self, cpu: int) -> tuple[int, int]:
        """Return the package and the die a CPU sits on."""
        topology = self._sysfs / f"devices/system/cpu/cpu{cpu}/topology"
        return _number(topology / "physical_package_id", cpu), _number(topology / "die_id", 0)

    def _without_mirrors(self, places: dict[int, tuple[int, int]]) -> tuple[dict[int, str], list[str]]:
        """Return the suffix of each CPU's rails; AMD's dies all show the socket's counter, so one of them
        stays.
        """
        packages = [package for package, _ in places.values()]
        many = {package for package in packages if packages.count(package) > 1}
        if many and is_amd(self._sysfs):
            first = {package: cpu for cpu, (package, _) in reversed(places.items())}
            return {cpu: f"-{package}" for package, cpu in first.items()}, ["one die a socket: the others mirror it"]
        return {
            cpu: f"-{package}-die-{die}" if package in many else f"-{package}" for cpu, (package, die) in places.items()
        }, []


class PerfCounter:
    """The joules of RAPL perf events since it was opened."""

    def __init__(
        self,
        events: list[Event],
        probe_facts: ProbeFacts,
        opener: Callable[[Event], int] = open_event,
        read: Callable[[int, int], bytes] = os.read,
    ) -> None:
        self.facts = probe_facts
        self.rails = tuple(_rail(event.rail) for event in events)
        self._events, self._read = events, read
        self._files: list[int] = []
        try:
            for event in events:
                self._files.append(opener(event))
            self._base = self._counts()
        except (OSError, ProbeReadError) as error:
            self.close()
            raise ProbeUnavailableError(f"RAPL's perf events cannot be opened: {error}") from error

    def read(self) -> tuple[float, dict[str, float]]:
        """Return (monotonic seconds, joules of every rail since the counter was opened).

        Raises:
            ProbeReadError: an event cannot be read, or ran backwards.
        """
        now_s, counts = time.monotonic(), self._counts()
        joules = {}
        for event, base, count in zip(self._events, self._base, counts, strict=True):
            if count < base:
                raise ProbeReadError(f"{event.rail} ran backwards")
            joules[event.rail] = (count - base) * event.scale_j
        return now_s, joules

    def close(self) -> None:
        """Close the events."""
        files, self._files = self._files, []
        for file in files:
            os.close(file)

    def _counts(self) -> list[int]:
        try:
            return [struct.unpack("=Q", self._read(file, 8))[0] for file in self._files]
        except (OSError, struct.error) as error:
            raise ProbeReadError(f"a perf event cannot be read: {error}") from error


def _rail(name: str) -> Rail:
    boundary, counted = rail_boundary(name)
    return Rail(name=name, boundary=boundary, counted=counted)


def _cpu_list(text: str) -> list[int]:
    """Read the kernel's list format: ``0,18`` or ``0-1,4``."""
    cpus: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        cpus += range(int(first), int(last or first) + 1)
    return cpus


def _number(path: Path, otherwise: int) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return otherwise
