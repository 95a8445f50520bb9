"""An emulated Arduino with an INA219 that prints lines of values, and its faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ipj_edge_probes.serial.emulation.command_line import parse
from ipj_edge_probes.serial.emulation.profile import Profile
from ipj_edge_probes.serial.emulation.pty_host import UnplugError, serve

HEADER = "t_ms,bus_mV,current_mA"
MILLIS_WRAP = 1 << 32
BOOT_S = 0.3  # opening the port resets the board, and its boot loader waits


@dataclass(frozen=True, kw_only=True)
class LineFaults:
    """What goes wrong.

    Attributes:
        no_header: It prints no header.
        no_time: It has no column of time.
        partial_start: The port is opened in the middle of a line.
        comments: It prints comments between the values.
        garble_every: Every so many lines one is torn; 0 never.
        lose_every: Every so many lines one is missing; 0 never.
        wrap_at_s: When its 32-bit milliseconds wrap; 0 never.
        reset_at_s: When it is reset and begins anew, in seconds since it booted; 0 never.
        batch_s: How long USB holds lines back to send them together.
        clock: Speed of its clock against ours.
        unplug_at_s: When the cable is pulled; 0 never.
    """

    no_header: bool = False
    no_time: bool = False
    partial_start: bool = False
    comments: bool = False
    garble_every: int = 0
    lose_every: int = 0
    wrap_at_s: float = 0.0
    reset_at_s: float = 0.0
    batch_s: float = 0.016
    clock: float = 1.0
    unplug_at_s: float = 0.0


class LineMeterEmulator:
    """The meter, without a port; see `ipj_edge_probes.serial.emulation.pty_host.Instrument`.

    Args:
        load: Current drawn.
        faults: What goes wrong.
        rate_hz: Lines per second.
        supply_v: Bus voltage.
    """

    def __init__(
        self, load: Profile, faults: LineFaults | None = None, *, rate_hz: float = 200.0, supply_v: float = 5.0
    ) -> None:
        self._load = load
        self._faults = faults or LineFaults()
        self._rate_hz = rate_hz
        self._supply_v = supply_v
        self._began_s: float | None = None
        self._flushed_s = 0.0
        self._sent = 0
        self._booted = self._reset = False

    def receive(self, data: bytes, now_s: float) -> bytes:
        """Take no orders."""
        del data, now_s
        return b""

    def produce(self, now_s: float) -> bytes:
        """Return the lines due, in batches."""
        if self._began_s is None:
            self._began_s = now_s + BOOT_S
        elapsed_s = now_s - self._began_s
        if elapsed_s >= 0 and not self._booted:
            self._booted = True
            return self._greeting()
        if 0 < self._faults.unplug_at_s <= elapsed_s:
            raise UnplugError
        if elapsed_s - self._flushed_s < self._faults.batch_s:
            return b""
        self._flushed_s = elapsed_s
        out = b""
        if 0 < self._faults.reset_at_s <= elapsed_s and not self._reset:
            self._reset = True
            out = self._greeting()
        due = int(elapsed_s * self._rate_hz * self._faults.clock)
        lines = (self._line(index) for index in range(self._sent, due))
        self._sent = max(due, self._sent)
        return out + b"".join(lines)

    def _greeting(self) -> bytes:
        header = HEADER.partition(",")[2] if self._faults.no_time else HEADER
        partial = b"2,5000,1\r\n" if self._faults.partial_start else b""
        return partial + (b"" if self._faults.no_header else f"{header}\r\n".encode())

    def _line(self, index: int) -> bytes:
        faults = self._faults
        if faults.lose_every and index % faults.lose_every == faults.lose_every - 1:
            return b""
        device_s = index / self._rate_hz
        amps = float(self._load.at(np.array([device_s / faults.clock]))[0])
        fields = [f"{self._supply_v * 1000:.0f}", f"{amps * 1000:.1f}"]
        if not faults.no_time:
            fields.insert(0, str(self._millis(device_s)))
        line = ",".join(fields)
        if faults.garble_every and index % faults.garble_every == faults.garble_every - 1:
            line = line[:-6] + "?"
        comment = "# alive\r\n" if faults.comments and index % 100 == 50 else ""
        return f"{comment}{line}\r\n".encode()

    def _millis(self, device_s: float) -> int:
        if self._reset:
            device_s = max(device_s - self._faults.reset_at_s, 0.0)
        offset = MILLIS_WRAP - round(self._faults.wrap_at_s * 1000) if self._faults.wrap_at_s else 0
        return (offset + round(device_s * 1000)) % MILLIS_WRAP


def main(argv: Sequence[str] | None = None) -> int:
    """Run the emulator on a pty."""
    load, faults = parse("Emulates a line meter (Arduino, INA219) on a pty.", LineFaults, argv, current_a=0.1)
    return serve(LineMeterEmulator(load, faults))


if __name__ == "__main__":
    raise SystemExit(main())
