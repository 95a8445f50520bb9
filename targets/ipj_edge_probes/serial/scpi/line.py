"""SCPI over a byte stream: commands, questions, and numbers that are none."""

from __future__ import annotations

import math
import re

from ipj_edge.errors import ProbeReadError
from ipj_edge_probes.serial.port import SerialPort, discard_input, read_until

REPLY_TIMEOUT_S = 2.0
# SCPI-99: 9.91E+37 is "no data", 9.9E+37 infinity, which instruments send for over range.
NO_DATA = 9.91e37
INFINITY = 9.9e37


class ScpiLine:
    """An instrument that speaks SCPI at a port.

    Attributes:
        port: The port.
    """

    def __init__(self, port: SerialPort) -> None:
        self.port = port

    def write(self, command: str) -> None:
        """Send a command.

        Raises:
            ProbeReadError: the instrument is gone.
        """
        self.port.write(command.encode("ascii") + b"\n")

    def query(self, command: str, timeout_s: float = REPLY_TIMEOUT_S) -> str:
        """Ask a question and return the answer without its line end. An answer left over from before is dropped.

        Raises:
            ProbeReadError: no answer.
        """
        discard_input(self.port, quiet_s=0.0)
        self.write(command)
        reply = read_until(self.port, b"\n", timeout_s)
        return reply.partition(b"\n")[0].decode("ascii", "replace").strip()

    def undefined_header(self) -> bool:
        """Say whether the instrument has complained of a command it does not know; empties its queue."""
        unknown = False
        for _ in range(20):
            reply = self.query("SYST:ERR?")
            code = re.match(r"[+-]?\d+", reply)
            if code is None or int(code[0]) == 0:
                return unknown
            unknown = unknown or int(code[0]) == -113
        return unknown


def parse_number(reply: str) -> float:
    """Return a number an instrument sent, without its unit.

    Raises:
        ProbeReadError: it is none, or stands for no data or over range.
    """
    try:
        value = float(reply.strip().rstrip("VAWvaw "))
    except ValueError:
        raise ProbeReadError(f"the instrument answers {reply!r} where a number was expected") from None
    if math.isclose(value, NO_DATA, rel_tol=1e-4):
        raise ProbeReadError(f"the instrument has no data ({reply}): is the channel on?")
    if not math.isfinite(value) or abs(value) >= INFINITY * 0.999:
        raise ProbeReadError(f"the instrument is over range ({reply}): choose a larger range")
    return value


def resolution(reply: str) -> float:
    """Return what one step of the last digit of a number is worth: 0.01 for ``120.14E+00``."""
    mantissa, _, exponent = reply.strip().upper().partition("E")
    decimals = len(mantissa.partition(".")[2])
    return 10.0 ** (int(exponent or 0) - decimals)
