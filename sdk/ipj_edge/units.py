"""Quantities as people read and write them; everywhere else they are SI base units."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Literal

from ipj_edge.errors import ConfigError

_UNITS = {
    "": 1.0, "%": 0.01, "pp": 0.01,
    "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "min": 60.0, "h": 3600.0,
    "J": 1.0, "mJ": 1e-3, "uJ": 1e-6, "µJ": 1e-6, "kJ": 1e3,
    "Hz": 1.0, "kHz": 1e3, "B": 1.0, "kB": 1e3, "MB": 1e6,
}  # fmt: skip
_HUNDREDTHS = ("%", "pp")  # divided by 100: times 0.01 would make 35 % a little more
TIMES = ("s", "ms", "us", "µs", "min", "h")
ENERGIES = ("J", "mJ", "uJ", "µJ", "kJ")
RATES = ("Hz", "kHz")
SIZES = ("B", "kB", "MB")


def quantity(text: str) -> tuple[float, str]:
    """Parse a number with its unit into base units: ``20ms`` is (0.02, "ms"), ``90%`` is (0.9, "%").

    Raises:
        ConfigError: no number, or a unit that is not known.
    """
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:e-?[0-9]+)?)\s*([A-Za-zµ%]*)\s*", text)
    if match is None or match.group(2) not in _UNITS:
        known = ", ".join(unit for unit in _UNITS if unit)
        raise ConfigError(f"'{text}': expected a number with a unit, e.g. 20ms, 3mJ or 5%; units are {known}")
    number, unit = float(match.group(1)), match.group(2)
    return (number / 100 if unit in _HUNDREDTHS else number * _UNITS[unit]), unit


def hundredths(text: str, unit: Literal["%", "pp"]) -> float | None:
    """Parse a percentage or percentage points: ``5%`` is 0.05, ``0.5pp`` is 0.005; None for anything else."""
    try:
        value, given = quantity(text)
    except ConfigError:
        return None
    return value if given == unit else None


def seconds(text: str) -> float:
    """Parse a time: ``20ms`` is 0.02; a bare number is seconds.

    Raises:
        ConfigError: no time, or none above 0.
    """
    value, unit = quantity(text)
    if unit not in ("", *TIMES) or not 0 < value < math.inf:
        raise ConfigError(f"'{text}': expected a time above 0, e.g. 20ms, 1.5s or 2min; a bare number is seconds")
    return value


def bytes_text(size: int) -> str:
    """Write a size in bytes: ``812 B``, ``14.2 kB``, ``3.61 MB``."""
    if size < 1000:
        return f"{size} B"
    return f"{size / 1e3:.1f} kB" if size < 1e6 else f"{size / 1e6:.2f} MB"


def seconds_text(seconds: float) -> str:
    """Write seconds with a fitting unit: ``12.3 µs``, ``4.56 ms``, ``7.89 s``."""
    if seconds < 0.99995e-3:
        return f"{1e6 * seconds:.1f} µs"
    return f"{1e3 * seconds:.2f} ms" if seconds < 0.999995 else f"{seconds:.2f} s"


def joules_text(joules: float) -> str:
    """Write joules with a fitting unit: ``12.3 µJ``, ``4.56 mJ``, ``7.89 J``."""
    for factor, unit in ((1e-6, "µJ"), (1e-3, "mJ")):
        if abs(joules) < 999.5 * factor:  # rounded up to 1000 it would be written 1e+03
            return f"{joules / factor:.3g} {unit}"
    return f"{joules:.4g} J" if abs(joules) < 9999.5 else f"{joules:.0f} J"


def interval_text(value: float, low: float | None, high: float | None, write: Callable[[float], str]) -> str:
    """Write a value with the half width of its interval: ``4.56 mJ ±2.1 %``."""
    if low is None or high is None or value == 0:
        return write(value)
    return f"{write(value)} ±{50 * (high - low) / abs(value):.2g} %"
