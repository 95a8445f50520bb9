"""An emulated UM24C, UM25C or UM34C USB meter, and its faults."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import xor

import numpy as np

from ipj_edge_probes.serial.emulation.command_line import parse
from ipj_edge_probes.serial.emulation.profile import Profile
from ipj_edge_probes.serial.emulation.pty_host import UnplugError, serve

REFRESH_S = 0.5
# Model id, steps per volt, steps per ampere.
MODELS = {"UM24C": (0x0963, 100, 1000), "UM25C": (0x09C9, 1000, 10000), "UM34C": (0x0D4C, 100, 1000)}
SUMMED = (
    *(1, 3, 7, 9, 15, 17, 19, 23, 31, 39, 41, 45, 49, 53, 55, 57, 59, 63, 67, 69, 73, 79, 83, 89, 97, 99),
    *(109, 111, 113, 119, 121, 127),
)


@dataclass(frozen=True, kw_only=True)
class UmFaults:
    """What goes wrong.

    Attributes:
        short_every: Every so many replies one is cut short; 0 never, 1 always.
        garbage_bytes: Bytes without a meaning in front of each reply.
        flip_every: Every so many replies one has a wrong power field; 0 never.
        unplug_at_s: When the link breaks, in seconds since the first question; 0 never.
        mute: Answers nothing at all.
    """

    short_every: int = 0
    garbage_bytes: int = 0
    flip_every: int = 0
    unplug_at_s: float = 0.0
    mute: bool = False


class UmEmulator:
    """The meter, without a port; see `ipj_edge_probes.serial.emulation.pty_host.Instrument`.

    Args:
        load: Current drawn.
        faults: What goes wrong.
        model: UM24C, UM25C or UM34C.
        supply_v: Supply voltage in volts.
    """

    def __init__(
        self, load: Profile, faults: UmFaults | None = None, *, model: str = "UM25C", supply_v: float = 5.0
    ) -> None:
        self._load = load
        self._faults = faults or UmFaults()
        self._model = model
        self._supply_v = supply_v
        self._began_s: float | None = None
        self._cleared_s = 0.0
        self._replies = 0

    def receive(self, data: bytes, now_s: float) -> bytes:
        """Answer each question; F4 clears the group."""
        if self._began_s is None:
            self._began_s = now_s
        reply = b""
        for byte in data:
            if byte == 0xF0 and not self._faults.mute:
                reply += self._reply(now_s - self._began_s)
            elif byte == 0xF4:
                self._cleared_s = now_s - self._began_s
        return reply

    def produce(self, now_s: float) -> bytes:
        """Say nothing unasked."""
        if self._began_s is not None and 0 < self._faults.unplug_at_s <= now_s - self._began_s:
            raise UnplugError
        return b""

    def _reply(self, elapsed_s: float) -> bytes:
        faults = self._faults
        self._replies += 1
        refreshed_s = elapsed_s - elapsed_s % REFRESH_S
        times_s = np.arange(self._cleared_s, max(refreshed_s, self._cleared_s) + REFRESH_S, REFRESH_S)
        amps = self._load.at(times_s)
        energy_j = float(amps[:-1].sum()) * REFRESH_S * self._supply_v
        frame = record(self._model, self._supply_v, float(amps[-1]), energy_j)
        if faults.flip_every and self._replies % faults.flip_every == 0:
            frame = frame[:7] + bytes((frame[7] ^ 0x40,)) + frame[8:]
        if faults.short_every and self._replies % faults.short_every == 0:
            frame = frame[:77]
        # A model id that opens no record is the worst garbage there is.
        return (b"\x09\xc9\x00" * faults.garbage_bytes)[: faults.garbage_bytes] + frame


def record(model: str, voltage_v: float, current_a: float, energy_j: float) -> bytes:
    """Return the 130 bytes a meter answers."""
    identity, per_volt, per_amp = MODELS[model]
    frame = bytearray(130)
    power_mw = round(voltage_v * current_a * 1000)
    struct.pack_into(">HHHI", frame, 0, identity, round(voltage_v * per_volt), round(current_a * per_amp), power_mw)
    struct.pack_into(">HHH", frame, 10, 25, 77, 0)
    struct.pack_into(">II", frame, 16, round(energy_j / voltage_v / 3.6), round(energy_j / 3.6))
    struct.pack_into(">I", frame, 122, min(round(voltage_v / max(current_a, 1e-4) * 10), 99999))
    frame[128:] = b"\xff\xf1"
    if model == "UM34C":
        frame[129] = reduce(xor, (frame[n] for n in SUMMED))
    return bytes(frame)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the emulator on a pty."""
    load, faults = parse("Emulates a UM25C on a pty.", UmFaults, argv, current_a=0.5)
    return serve(UmEmulator(load, faults))


if __name__ == "__main__":
    raise SystemExit(main())
