"""What the machine was doing around a window: clock frequency, temperature, and how long work waited for a CPU.

Read between windows, never inside the timed loop. What the system does not show is None, not 0.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

# Sensors of the processor itself, as Linux names its thermal zones and hwmon chips.
_ZONES = ("x86_pkg_temp", "cpu", "soc", "k10temp", "coretemp")


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """A glance at the machine.

    Attributes:
        frequency_hz: Mean clock of the CPUs this process may use.
        temperature_celsius: Hottest sensor of the processor.
        waited_s: Seconds that this process's threads have been ready to run and had no CPU, since they began.
    """

    frequency_hz: float | None = None
    temperature_celsius: float | None = None
    waited_s: float | None = None


def look(sysfs: Path = Path("/sys"), proc: Path = Path("/proc/self")) -> Conditions:
    """Return what the system shows now."""
    return Conditions(
        frequency_hz=_frequency_hz(sysfs), temperature_celsius=_temperature_celsius(sysfs), waited_s=waited_s(proc)
    )


def waited_s(proc: Path = Path("/proc/self")) -> float | None:
    """Return the seconds this process's threads waited for a CPU, or None where the kernel does not count them.

    ``schedstat`` of every thread holds: nanoseconds on a CPU, nanoseconds waiting for one, time slices
    (Documentation/scheduler/sched-stats.rst).
    """
    total_ns, found = 0, False
    try:
        for thread in (proc / "task").iterdir():
            fields = _read(thread / "schedstat").split()
            if len(fields) == 3:
                total_ns, found = total_ns + int(fields[1]), True
    except (OSError, ValueError):
        return None
    return total_ns / 1e9 if found else None


def _frequency_hz(sysfs: Path) -> float | None:
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    texts = [_read(sysfs / f"devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq") for cpu in cpus]
    values = [1e3 * int(text) for text in texts if text.isdecimal()]
    return sum(values) / len(values) if values else None


def _temperature_celsius(sysfs: Path) -> float | None:
    found = [
        int(text) / 1e3
        for zone in sorted((sysfs / "class/thermal").glob("thermal_zone*"))
        if _read(zone / "type").lower().startswith(_ZONES) and (text := _read(zone / "temp")).lstrip("-").isdecimal()
    ]
    found += [
        int(text) / 1e3
        for chip in sorted((sysfs / "class/hwmon").glob("hwmon*"))
        if _read(chip / "name").startswith(_ZONES)
        for sensor in sorted(chip.glob("temp*_input"))
        if (text := _read(sensor)).lstrip("-").isdecimal()
    ]
    return max(found) if found else None


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
