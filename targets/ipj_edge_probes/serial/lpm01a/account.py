"""Which samples of an X-NUCLEO-LPM01A were lost: its time stamps against the count of samples between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ipj_edge.errors import ProbeReadError
from ipj_edge_probes.serial.lpm01a.decode import SAMPLES_PER_STAMP, MarkKind, StreamChunk, StreamMark

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Accounted:
    """Samples put in their places.

    Attributes:
        values: Samples evenly spaced in the meter's time, lost ones filled with the value before, shape (n,).
        lost: How many of them are filled.
    """

    values: Array
    lost: int


class StampAccount:
    """Checks every block of samples that a time stamp closes.

    With ``hold`` a block is handed out only when its stamp has come, for streams in which a lost byte garbles
    samples without a trace (binary); else at once, and losses are filled in where the stamp shows them.
    """

    def __init__(self, rate_hz: float, *, hold: bool) -> None:
        self._rate_hz = rate_hz
        self._hold = hold
        self._held: list[Array] = []
        self._count = 0
        self._last_ms: int | None = None
        self._last_value = 0.0
        self._doubtful = False

    @property
    def held(self) -> int:
        """Samples that have come and are not handed out yet."""
        return sum(len(part) for part in self._held)

    def feed(self, chunk: StreamChunk) -> Accounted:
        """Account for a chunk.

        Raises:
            ProbeReadError: the meter failed or stopped, or its time stamps cannot be right.
        """
        out: list[Array] = []
        lost = position = 0
        for mark in chunk.marks:
            lost += self._put(chunk.values[position : mark.position], out)
            position = mark.position
            lost += self._pass(mark, out)
        lost += self._put(chunk.values[position:], out)
        return Accounted(values=np.concatenate(out) if out else np.empty(0), lost=lost)

    def _put(self, values: Array, out: list[Array]) -> int:
        """Count samples and hand them out or hold them; return how many were torn."""
        if not len(values):
            return 0
        self._count += len(values)
        torn = np.isnan(values)
        if torn.any():
            values = _filled(values, torn, self._last_value)
        if self._hold:
            self._held.append(values)
            return 0
        self._last_value = float(values[-1])
        out.append(values)
        return int(torn.sum())

    def _pass(self, mark: StreamMark, out: list[Array]) -> int:
        if mark.kind is MarkKind.FAILURE:
            raise ProbeReadError(f"'lpm01a' reports: {mark.text}")
        if mark.kind is MarkKind.END:
            raise ProbeReadError(f"'lpm01a' ended the acquisition by itself ({mark.text}): overcurrent or stopped")
        if mark.kind is MarkKind.MISALIGNED:
            self._doubtful = True
        if mark.kind is not MarkKind.STAMP:
            return 0
        if mark.buffer_share >= 1:
            raise ProbeReadError("'lpm01a' reports a full buffer: samples are lost; this computer reads too slowly")
        lost = self._close_block(mark.stamp_ms, out)
        self._last_ms, self._count, self._doubtful, self._held = mark.stamp_ms, 0, False, []
        return lost

    def _close_block(self, stamp_ms: int, out: list[Array]) -> int:
        """Hand out a block with its losses filled; return how many there are."""
        if self._last_ms is None:
            return 0  # samples before the first stamp cannot be checked; a held stream drops them
        expected = self._expected(stamp_ms - self._last_ms)
        if self._doubtful:
            out.append(np.full(expected, self._last_value))
            return expected
        if self._held:
            out += self._held
            self._last_value = float(self._held[-1][-1])
        lost = max(expected - self._count, 0)
        if lost:
            out.append(np.full(lost, self._last_value))
        return lost

    def _expected(self, elapsed_ms: int) -> int:
        """Return how many samples the time between two stamps stands for.

        Raises:
            ProbeReadError: the stamps and the count contradict each other in a way no loss explains.
        """
        if elapsed_ms <= 0:
            raise ProbeReadError(f"'lpm01a': time stamps went back by {-elapsed_ms} ms; the window is not valid")
        expected = round(elapsed_ms * self._rate_hz / 1000)
        tolerance = self._rate_hz * 0.0005  # stamps are whole milliseconds
        if self._doubtful:
            return expected
        if abs(expected - self._count) <= tolerance:
            return self._count
        if self._count == SAMPLES_PER_STAMP or self._count > expected:
            raise ProbeReadError(
                f"'lpm01a': its time stamps advance by {elapsed_ms} ms over {self._count} samples, and at "
                f"{self._rate_hz:g} Hz they should by {self._count * 1000 / self._rate_hz:g} ms; "
                "update the firmware of the meter"
            )
        return expected


def _filled(values: Array, torn: NDArray[np.bool_], before: float) -> Array:
    """Replace torn samples by the last whole one before them."""
    source = np.maximum.accumulate(np.where(torn, -1, np.arange(len(values))))
    return np.where(source < 0, before, values[np.maximum(source, 0)])
