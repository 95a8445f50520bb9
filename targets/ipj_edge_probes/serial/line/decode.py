"""Lines of comma-separated values from a home-made meter, such as an Arduino with an INA219.

There is no standard; the header names the columns and their units: ``t_ms,bus_mV,current_mA``.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np
from numpy.typing import NDArray

from ipj_edge.errors import ConfigError, ProbeReadError

Array = NDArray[np.float64]

TIME_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
VOLT_UNITS = {"v": 1.0, "mv": 1e-3, "uv": 1e-6}
AMP_UNITS = {"a": 1.0, "ma": 1e-3, "ua": 1e-6}
WATT_UNITS = {"w": 1.0, "mw": 1e-3, "uw": 1e-6}
# Arduino's millis() and micros() are 32 bits wide.
COUNTER_STEPS = 2.0**32

_SEPARATOR = re.compile(r"[,;\t]")


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One column that is used: its place and its unit in SI base units."""

    index: int
    unit: float


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of a meter.

    Attributes:
        names: Names as in the header.
        time: The meter's own time; None without one.
        volts: Supply voltage.
        amps: Current.
        watts: Power; used only where volts and amperes are not both there, as it is coarser on an INA219.
    """

    names: tuple[str, ...]
    time: Column | None = None
    volts: Column | None = None
    amps: Column | None = None
    watts: Column | None = None


def split_line(line: str) -> tuple[str, ...]:
    """Cut a line at commas, semicolons or tabs."""
    return tuple(part.strip() for part in _SEPARATOR.split(line.strip()))


def is_header(line: str) -> bool:
    """Say whether a line names columns: every field begins with a letter and one at least ends in a unit."""
    names = split_line(line)
    named = all(re.fullmatch(r"[A-Za-z]\w*", name) for name in names)
    return named and any(_unit(name) in (*TIME_UNITS, *VOLT_UNITS, *AMP_UNITS, *WATT_UNITS) for name in names)


def parse_header(line: str) -> Columns:
    """Read which column holds what, from names that end in ``_unit``.

    A voltage across the shunt is not the supply's; among others ``load`` goes before ``bus``.

    Raises:
        ConfigError: no current and no power among them.
    """
    names = split_line(line)
    columns = Columns(
        names=names,
        time=_find(names, TIME_UNITS),
        volts=_find(names, VOLT_UNITS),
        amps=_find(names, AMP_UNITS),
        watts=_find(names, WATT_UNITS),
    )
    if columns.amps is None and columns.watts is None:
        raise ConfigError(
            f"'serial-line': no column of current or power in {line.strip()!r}; names end in their unit, "
            "such as t_ms,bus_mV,current_mA"
        )
    return columns


def _find(names: tuple[str, ...], units: dict[str, float]) -> Column | None:
    fitting = [n for n, name in enumerate(names) if _unit(name) in units and "shunt" not in name.lower()]
    fitting.sort(key=lambda n: ("load" not in names[n].lower(), "bus" not in names[n].lower(), n))
    return Column(index=fitting[0], unit=units[_unit(names[fitting[0]])]) if fitting else None


def _unit(name: str) -> str:
    return name.rpartition("_")[2].lower()


def split_lines(remainder: bytes, data: bytes) -> tuple[list[str], bytes]:
    """Return the whole lines in what has come, without their ends, and the bytes of the one not yet ended."""
    *lines, rest = (remainder + data).split(b"\n")
    return [line.decode("ascii", "replace").strip() for line in lines], rest


def parse_rows(lines: list[str], columns: Columns) -> tuple[Array, int]:
    """Return the values of the lines that are rows, shape (rows, columns), and how many lines are none.

    Empty lines and comments (``#``) do not count.

    Raises:
        ProbeReadError: a header in the middle of the stream: the meter was reset.
    """
    rows: list[list[float]] = []
    bad = 0
    for line in lines:
        if not line or line.startswith("#"):
            continue
        if (row := _row(line, len(columns.names))) is not None:
            rows.append(row)
        elif is_header(line) and split_line(line) == columns.names:
            raise ProbeReadError("'serial-line': the meter began anew with its header: it was reset in the window")
        else:
            bad += 1
    return np.array(rows, np.float64).reshape(-1, len(columns.names)), bad


def _row(line: str, width: int) -> list[float] | None:
    try:
        row = [float(part) for part in split_line(line)]
    except ValueError:
        return None
    return row if len(row) == width and np.isfinite(row).all() else None


def watts_of(rows: Array, columns: Columns, voltage_v: float | None) -> Array:
    """Return power in watts, shape (rows,).

    Args:
        rows: Values, shape (rows, columns).
        columns: What they are.
        voltage_v: Supply voltage where no column holds it.

    Raises:
        ConfigError: current alone, and no voltage.
    """
    if columns.amps is not None and (columns.volts is not None or columns.watts is None):
        amps = rows[:, columns.amps.index] * columns.amps.unit
        if columns.volts is not None:
            return np.asarray(amps * rows[:, columns.volts.index] * columns.volts.unit, np.float64)
        if voltage_v is None:
            raise ConfigError("'serial-line': the meter sends current only: give its supply, --voltage VOLTS")
        return np.asarray(amps * voltage_v, np.float64)
    assert columns.watts is not None  # parse_header saw to it
    return np.asarray(rows[:, columns.watts.index] * columns.watts.unit, np.float64)


def unwrap(counts: Array, before: float | None) -> Array:
    """Undo the wraps of a 32-bit counter, going on from the last unwrapped count.

    Raises:
        ProbeReadError: the counter went back and no wrap explains it.
    """
    if not len(counts):
        return counts
    start = counts[0] if before is None else before
    steps = np.diff(counts, prepend=start % COUNTER_STEPS)
    steps[steps < -COUNTER_STEPS / 2] += COUNTER_STEPS
    if (steps < 0).any():
        raise ProbeReadError("'serial-line': the meter's time went back: it was reset in the window")
    return np.asarray(start + np.cumsum(steps), np.float64)
