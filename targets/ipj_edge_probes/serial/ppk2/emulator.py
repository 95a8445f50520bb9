"""An emulated Power Profiler Kit II: metadata, modes, the stream of 100 ksamples/s, and its faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ipj_edge_probes.serial.emulation.command_line import parse
from ipj_edge_probes.serial.emulation.profile import Profile
from ipj_edge_probes.serial.emulation.pty_host import UnplugError, serve

Array = NDArray[np.float64]

RATE_HZ = 100_000
TOP_ADC = (1 << 14) - 1
# Length of a command by its first byte; all others are one byte long.
COMMAND_BYTES = {0x0C: 2, 0x0D: 3, 0x11: 2, 0x25: 6}

# Constants of the size that factory-calibrated units report.
R_OHM = (1003.35, 101.6, 10.25, 0.9550, 0.0562)
GS = (0.001, 0.02, 0.08, 0.15, 0.07)
GI = (1.0, 0.970, 0.962, 0.953, 0.958)
O_STEPS = (112.9, 75.5, 64.6, 50.5, 87.2)
S_A_PER_V = (4.8e-8, 6.0e-7, 5.3e-6, 6.3e-5, 2.9e-3)
I_A = (-1.0e-7, -1.4e-6, 3.6e-5, -3.7e-4, -9.4e-3)
# The meter changes range upwards above these currents.
RANGE_TOP_A = (50e-6, 500e-6, 5e-3, 50e-3)


@dataclass(frozen=True, kw_only=True)
class Ppk2Faults:
    """What goes wrong.

    Attributes:
        drop_byte_every_s: Lose one byte of the stream this often; 0 never.
        lose_samples: Samples lost in each second.
        misaligned_start: Bytes of a torn word in front of the stream.
        stale_samples: Samples still sent between the stop and the metadata.
        nan_metadata: Metadata with ``-nan`` in it.
        uncalibrated: Metadata of a unit without constants of its own.
        garbage_metadata: No metadata, but bytes that mean nothing.
        overcurrent_at_s: When the ADC of the largest range saturates, in seconds of stream; 0 never.
        unplug_at_s: When the cable is pulled, in seconds of stream; 0 never.
        clock: Speed of the meter's clock against ours.
    """

    drop_byte_every_s: float = 0.0
    lose_samples: int = 0
    misaligned_start: int = 0
    stale_samples: int = 0
    nan_metadata: bool = False
    uncalibrated: bool = False
    garbage_metadata: bool = False
    overcurrent_at_s: float = 0.0
    unplug_at_s: float = 0.0
    clock: float = 1.0


class Ppk2Emulator:
    """The unit, without a port; see `ipj_edge_probes.serial.emulation.pty_host.Instrument`.

    Attributes:
        powered: Whether the device under test is connected.
        mode: 1 ampere meter, 2 source meter.
        vdd_mv: Regulator setting in millivolts.
    """

    def __init__(self, load: Profile, faults: Ppk2Faults | None = None, *, logic: int = 0) -> None:
        self.powered = False
        self.mode = 2
        self.vdd_mv = 3000
        self._load = load
        self._faults = faults or Ppk2Faults()
        self._logic = logic
        self._input = b""
        self._began_s: float | None = None
        self._sent = 0
        self._counter = 0
        self._dither = 0.5

    def receive(self, data: bytes, now_s: float) -> bytes:
        """Obey commands; a command may come in pieces."""
        self._input += data
        reply = b""
        while self._input and len(self._input) >= (size := COMMAND_BYTES.get(self._input[0], 1)):
            command, self._input = self._input[:size], self._input[size:]
            reply += self._obey(command, now_s)
        return reply

    def produce(self, now_s: float) -> bytes:
        """Return the samples due."""
        if self._began_s is None:
            return b""
        elapsed_s = now_s - self._began_s
        if 0 < self._faults.unplug_at_s <= elapsed_s:
            raise UnplugError
        due = int(elapsed_s * RATE_HZ * self._faults.clock)
        first, self._sent = self._sent, max(due, self._sent)
        return self._spoil(self._words(first, self._sent), first) if due > first else b""

    def _obey(self, command: bytes, now_s: float) -> bytes:
        code = command[0]
        if code == 0x06:
            self._began_s, self._sent = now_s, 0
            return b"\xa5" * self._faults.misaligned_start
        if code == 0x07:
            self._began_s = None
        elif code == 0x0C:
            self.powered = command[1] == 1
        elif code == 0x0D:
            self.vdd_mv = int.from_bytes(command[1:3], "big")
        elif code == 0x11:
            self.mode = command[1]
        elif code == 0x19:
            return self._metadata()
        return b""

    def _metadata(self) -> bytes:
        if self._faults.garbage_metadata:
            return bytes(range(128, 250))
        stale = self._words(0, self._faults.stale_samples).tobytes()[1:]
        return stale + metadata_text(self._faults, self.vdd_mv, self.mode).encode()

    def _words(self, first: int, last: int) -> NDArray[np.uint32]:
        """Return samples first to last, and count them."""
        index = np.arange(first, last)
        current_a = self._load.at(index / RATE_HZ) if self.powered else np.zeros(len(index))
        level = np.searchsorted(RANGE_TOP_A, current_a)
        # A rolling fraction in place of noise: rounding then averages out, as it does in a real converter.
        fraction = np.modf(self._dither + index * 0.6180339887)[0]
        adc = np.clip(np.floor(adc_steps(current_a, level, self.vdd_mv / 1000) + fraction), 0, TOP_ADC)
        at_s = self._faults.overcurrent_at_s
        if at_s:
            over = index >= at_s * RATE_HZ
            adc[over], level[over] = TOP_ADC, 4
        counter = self._counter + np.arange(len(index)) & 63
        self._counter = (self._counter + len(index)) & 63
        words = adc.astype(np.uint32) | level.astype(np.uint32) << 14 | counter.astype(np.uint32) << 18
        return np.asarray(words | np.uint32(self._logic << 24), "<u4")

    def _spoil(self, words: NDArray[np.uint32], first: int) -> bytes:
        faults = self._faults
        index = np.arange(first, first + len(words))
        if faults.lose_samples:
            words = words[index % RATE_HZ < RATE_HZ - faults.lose_samples]
        data = words.tobytes()
        if faults.drop_byte_every_s:
            hits = np.flatnonzero((index + 1) % int(faults.drop_byte_every_s * RATE_HZ) == 0)
            for hit in reversed(hits.tolist()):
                data = data[: hit * 4 + 1] + data[hit * 4 + 2 :]
        return data


def adc_steps(current_a: Array, level: NDArray[np.int64], vdd_v: float) -> Array:
    """Return the ADC reading (not rounded) of currents in given ranges: the meter's formula, turned around."""
    gs, gi = np.array(GS)[level], np.array(GI)[level]
    y = current_a - np.array(S_A_PER_V)[level] * vdd_v - np.array(I_A)[level]
    x = (-gi + np.sqrt(gi * gi + 4 * gs * np.maximum(y, 0))) / (2 * gs)
    return np.asarray((x * np.array(R_OHM)[level] * 163840 / 1.8 + np.array(O_STEPS)[level]) / 4, np.float64)


def metadata_text(faults: Ppk2Faults, vdd_mv: int, mode: int) -> str:
    """Return the reply to GET METADATA."""
    tables = {"R": R_OHM, "GS": GS, "GI": GI, "O": O_STEPS, "S": S_A_PER_V, "I": I_A, "UG": (1.0,) * 5}
    if faults.uncalibrated:
        tables = {"R": (1031.64, 101.65, 10.15, 0.94, 0.043), "UG": (1.0,) * 5}
    lines = [f"{key}{n}: {value:.9f}" for key, values in tables.items() for n, value in enumerate(values)]
    ia = "-nan" if faults.nan_metadata else "56"
    if faults.nan_metadata:
        lines = ["UG4: -nan" if line.startswith("UG4") else line for line in lines]
    return "\n".join(["Calibrated: 0", *lines, f"VDD: {vdd_mv}", "HW: 9173", f"mode: {mode}", f"IA: {ia}", "END", ""])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the emulator on a pty."""
    load, faults = parse("Emulates a Nordic PPK2 on a pty.", Ppk2Faults, argv, current_a=0.010)
    return serve(Ppk2Emulator(load, faults))


if __name__ == "__main__":
    raise SystemExit(main())
