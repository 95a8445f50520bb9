"""A recorded power trace, played back in real time through the interface of a sensor.

``port`` is the file. CSV: a first line that names the columns, ``time_s`` and one ``RAIL_w`` a rail; lines with
``#`` are comments. npz: the same names as arrays of shape (n,). Times in seconds from any origin, power in watts.

A trace was taken while other work ran, so what it gives here is ``modelled``: it is for trying out and for tests.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipj_edge.errors import ProbeReadError, ProbeUnavailableError, reading
from ipj_edge.protocols import PowerProbe
from ipj_edge.values import Availability, ProbeFacts, ProbeOptions, Rail

Array = NDArray[Any]
_FIX = "--probe replay --port trace.csv (columns time_s and NAME_w)"


class ReplaySampler:
    """Gives a trace's samples as their times come round."""

    def __init__(
        self,
        name: str,
        times_s: Array,
        watts: dict[str, Array],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rails = tuple(Rail(name=rail, boundary="rails") for rail in watts)
        self.facts = ProbeFacts(
            name="replay",
            boundary="rails",
            provenance="modelled",
            update_interval_s=float(np.median(np.diff(times_s))),
            note=f"replayed from {name}: not this work's energy",
        )
        self._times_s, self._watts, self._clock = times_s - times_s[0], watts, clock
        self._start_s: float | None = None
        self._given = 0

    def start(self) -> None:
        """Begin to play at the first sample."""
        self._start_s, self._given = self._clock(), 0

    def drain(self) -> dict[str, tuple[Array, Array]]:
        """Return the samples whose time has come since the last drain.

        Raises:
            ProbeReadError: the trace has ended.
        """
        if self._start_s is None:
            raise ProbeReadError("the trace has not been started")
        elapsed_s = self._clock() - self._start_s
        first, last = self._given, int(np.searchsorted(self._times_s, elapsed_s, side="right"))
        if first == self._times_s.size and elapsed_s > self._times_s[-1] + self.facts.update_interval_s:
            raise ProbeReadError(f"the trace ended after {self._times_s[-1]:.3g} s")
        self._given = last
        times = self._times_s[first:last] + self._start_s
        return {name: (times, power[first:last]) for name, power in self._watts.items()}

    def stop(self) -> None:
        """End playing."""
        self._start_s = None


class ReplayProbe:
    """A trace file behind the probe interface."""

    name = "replay"

    def availability(self, options: ProbeOptions) -> Availability:
        """Say whether a readable trace was named."""
        if options.port is None:
            return Availability(available=False, reason="no trace file was named", fix=_FIX)
        try:
            times_s, _ = load_trace(Path(options.port))
        except ProbeUnavailableError as error:
            return Availability(available=False, reason=str(error), fix=_FIX)
        return Availability(available=True, reason=f"{options.port}: {times_s[-1] - times_s[0]:.3g} s")

    def open(self, options: ProbeOptions) -> ReplaySampler:
        """Load the trace.

        Raises:
            ProbeUnavailableError: no file was named, or it is not a trace.
        """
        if options.port is None:
            raise ProbeUnavailableError(f"no trace file was named; use {_FIX}")
        path = Path(options.port)
        times_s, watts = load_trace(path)
        return ReplaySampler(path.name, times_s, watts)


def load_trace(path: Path) -> tuple[Array, dict[str, Array]]:
    """Read a trace: times in seconds, shape (n,), and the watts of each rail, shape (n,).

    Raises:
        ProbeUnavailableError: the file cannot be read or is not a trace.
    """
    with reading(f"the trace {path}", ProbeUnavailableError):
        columns = _npz(path) if path.suffix == ".npz" else _csv(path)
    times_s = columns.pop("time_s", None)
    watts = {name.removesuffix("_w"): power for name, power in columns.items() if name.endswith("_w")}
    if times_s is None or not watts:
        raise ProbeUnavailableError(f"the trace {path} needs a column time_s and at least one NAME_w")
    if times_s.size < 2 or any(power.shape != times_s.shape for power in watts.values()):
        raise ProbeUnavailableError(f"the trace {path} needs at least two samples and columns of equal length")
    if not all(np.isfinite(column).all() for column in (times_s, *watts.values())):
        raise ProbeUnavailableError(f"the trace {path} holds a value that is not a number")
    if (np.diff(times_s) <= 0).any():
        raise ProbeUnavailableError(f"the times of the trace {path} do not increase")
    return times_s, watts


def _npz(path: Path) -> dict[str, Array]:
    with np.load(path, allow_pickle=False) as arrays:
        return {name: np.asarray(arrays[name], dtype=np.float64) for name in arrays.files}


def _csv(path: Path) -> dict[str, Array]:
    lines = [line for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("#")]
    if not lines:
        return {}
    names = [name.strip() for name in lines[0].split(",")]
    rows = [[float(cell) for cell in line.split(",")] for line in lines[1:]]
    if any(len(row) != len(names) for row in rows):
        raise ValueError(f"a line does not have {len(names)} values")
    table = np.asarray(rows, dtype=np.float64).reshape(len(rows), len(names))
    return {name: table[:, index] for index, name in enumerate(names)}


_: type[PowerProbe] = ReplayProbe
