"""A port that plays a written dialogue, for tests of drivers without clock, thread or pty."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ipj_edge.errors import ProbeReadError

Turn = tuple[bytes | None, bytes | None]


class ScriptedPort:
    """Plays turns of (what the driver sends, what the meter answers) and fails on anything else.

    A turn whose first part is None is sent unasked, as soon as the turns before it are over; one whose second
    part is None has no answer. See `ipj_edge_probes.serial.port.SerialPort`.

    Args:
        turns: The dialogue.
        gone_at_end: Whether the meter is unplugged when all is said.

    Attributes:
        name: For messages.
        closed: Whether the driver has closed the port.
    """

    name = "scripted"

    def __init__(self, turns: Sequence[Turn], *, gone_at_end: bool = False) -> None:
        self.closed = False
        self._turns = list(turns)
        self._gone_at_end = gone_at_end
        self._sent = b""
        self._waiting = b""

    def write(self, data: bytes) -> None:
        """Compare with the script; a turn may be sent in several writes."""
        self._sent += data
        expected = self._turns[0][0] if self._turns else None
        if expected is None or not expected.startswith(self._sent):
            raise AssertionError(f"the driver sent {self._sent!r}; the script expects {expected!r}")
        if self._sent == expected:
            self._sent = b""
            self._waiting += self._turns.pop(0)[1] or b""

    def read(self, timeout_s: float) -> bytes:
        """Return what the meter has answered so far; waits only a moment, for the script knows no time."""
        while self._turns and self._turns[0][0] is None and not self._waiting:
            self._waiting += self._turns.pop(0)[1] or b""
        if self._gone_at_end and not self._waiting and not self._turns:
            raise ProbeReadError(f"{self.name}: the meter is gone; was it unplugged?")
        if not self._waiting:
            time.sleep(min(timeout_s, 0.01))
        data, self._waiting = self._waiting, b""
        return data

    def close(self) -> None:
        """Note that the port was closed."""
        self.closed = True

    def finish(self) -> None:
        """Fail when turns of the script were never played."""
        assert not self._turns, f"never played: {self._turns!r}"
