"""An emulated X-NUCLEO-LPM01A: its command line, both stream formats, and its faults."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ipj_edge_probes.serial.emulation.command_line import parse
from ipj_edge_probes.serial.emulation.profile import Profile
from ipj_edge_probes.serial.emulation.pty_host import UnplugError, serve

PROMPT = "PowerShield > "
SAMPLES_PER_STAMP = 1000
SUFFIX = {"u": 1e-6, "m": 1e-3, "k": 1e3}
CHOICES = {
    "acqmode": ("dyn", "stat"),
    "format": ("ascii_dec", "bin_hexa"),
    "funcmode": ("optim", "high"),
    "output": ("current", "energy"),
    "pwr": ("auto", "on", "off", "on nostatus", "on status", "off nostatus"),
    "pwrend": ("on", "off"),
    "trigsrc": ("sw", "d7"),
}
FREE = ("acqtime", "currthres", "echo", "eventsrc", "lcd", "targrst", "trigdelay")
RATES_HZ = (1e5, 5e4, 2e4, 1e4, 5e3, 2e3, 1e3, 500, 200, 100, 50, 20, 10, 5, 2, 1)


@dataclass(frozen=True, kw_only=True)
class Lpm01aFaults:
    """What goes wrong.

    Attributes:
        samples_per_stamp: Samples sent for each 1000 due; 990 loses one in a hundred.
        stamp_clock: Speed of the time stamps; 1.33 reproduces eembc/energyrunner#24.
        drop_byte_at_s: When one byte of the stream is lost; 0 never.
        drop_byte_every_s: Lose one byte this often; 0 never.
        overcurrent_at_s: When the meter stops for overcurrent; 0 never.
        full_buffer_at_s: When the meter's buffer is full; 0 never.
        unplug_at_s: When the cable is pulled; 0 never.
        refuse: Name of a command the firmware refuses.
        mute: Answers nothing at all.
        streaming_at_open: An earlier program left it acquiring.
    """

    samples_per_stamp: int = SAMPLES_PER_STAMP
    stamp_clock: float = 1.0
    drop_byte_at_s: float = 0.0
    drop_byte_every_s: float = 0.0
    overcurrent_at_s: float = 0.0
    full_buffer_at_s: float = 0.0
    unplug_at_s: float = 0.0
    refuse: str = ""
    mute: bool = False
    streaming_at_open: bool = False


class Lpm01aEmulator:
    """The meter, without a port; see `ipj_edge_probes.serial.emulation.pty_host.Instrument`.

    Attributes:
        settings: Value of every setting that was given, by command.
        supply_v: Supply of the device under test in volts.
        rate_hz: Samples per second.
        host_controls: Whether the host has taken control.
    """

    def __init__(self, load: Profile, faults: Lpm01aFaults | None = None) -> None:
        self.settings = {"output": "current", "format": "ascii_dec", "pwr": "auto"}
        self.supply_v = 3.3
        self.rate_hz = 100.0
        self.host_controls = False
        self._load = load
        self._faults = faults or Lpm01aFaults()
        self._input = b""
        self._began_s: float | None = None
        self._sent = 0
        self._streams_at_open = self._faults.streaming_at_open

    def receive(self, data: bytes, now_s: float) -> bytes:
        """Obey whole lines."""
        *lines, self._input = (self._input + data).split(b"\n")
        if self._faults.mute:
            return b""
        return b"".join(self._obey(line.decode("ascii", "replace").strip(), now_s) for line in lines)

    def produce(self, now_s: float) -> bytes:
        """Return the samples due."""
        if self._streams_at_open and self._began_s is None:
            self._begin(now_s)
        if self._began_s is None:
            return b""
        elapsed_s = now_s - self._began_s
        if 0 < self._faults.unplug_at_s <= elapsed_s:
            raise UnplugError
        first, self._sent = self._sent, max(self._sent, int(elapsed_s * self.rate_hz))
        stream = self._stream(first, self._sent)
        if 0 < self._faults.overcurrent_at_s <= elapsed_s:
            self._began_s = None
            return stream + (b"\xf0\xf4\xff\xff" if self._binary else b"error: overcurrent\r\nend\r\n")
        return stream

    @property
    def _binary(self) -> bool:
        return self.settings["format"] == "bin_hexa"

    def _begin(self, now_s: float) -> None:
        self._began_s, self._sent = now_s, 0

    def _obey(self, line: str, now_s: float) -> bytes:
        name, _, value = line.partition(" ")
        if not line:
            return b""
        if name == self._faults.refuse or not self._take(name, value, now_s):
            return f"{PROMPT}error {line}\r\nError detail: not possible now\r\n".encode()
        extra = b"Acquisition completed\r\n" if name == "stop" else b""
        stamp = self._stamp(0) if name == "start" else b""
        return f"{PROMPT}ack {line}\r\n".encode() + extra + stamp

    def _take(self, name: str, value: str, now_s: float) -> bool:
        """Carry out a command; False refuses it."""
        if name in ("htc", "hrc"):
            self.host_controls = name == "htc"
        elif name == "start":
            self._begin(now_s)
        elif name == "stop":
            self._began_s, self._streams_at_open = None, False
        elif name == "volt":
            self.supply_v = number(value)
            return 1.8 <= self.supply_v <= 3.3
        elif name == "freq":
            self.rate_hz = number(value)
            return self.rate_hz in RATES_HZ
        elif name in CHOICES:
            self.settings[name] = value
            return value in CHOICES[name]
        else:
            self.settings[name] = value
            return name in FREE
        return True

    def _stream(self, first: int, last: int) -> bytes:
        """Return samples first to last with the time stamps between them."""
        out = bytearray()
        while first < last:
            block_end = min(last, (first // SAMPLES_PER_STAMP + 1) * SAMPLES_PER_STAMP)
            out += self._samples(first, block_end)
            if block_end % SAMPLES_PER_STAMP == 0:
                out += self._stamp(block_end)
            first = block_end
        return bytes(out)

    def _samples(self, first: int, last: int) -> bytes:
        index = np.arange(first, last)
        index = index[index % SAMPLES_PER_STAMP < self._faults.samples_per_stamp]
        values = self._load.at(index / self.rate_hz)
        if not self.settings["pwr"].startswith("on"):
            values = np.zeros(len(index))
        if self.settings["output"] == "energy":
            values = values * self.supply_v / self.rate_hz
        data = encode_binary(values) if self._binary else b"".join(encode_ascii(value) for value in values.tolist())
        return self._drop(data, first, last)

    def _drop(self, data: bytes, first: int, last: int) -> bytes:
        """Lose the fourth byte of what stands for a moment of loss."""
        at_s, every_s = self._faults.drop_byte_at_s, self._faults.drop_byte_every_s
        begin_s, end_s = first / self.rate_hz, last / self.rate_hz
        hit = bool(at_s) and begin_s <= at_s < end_s
        if every_s:
            hit = hit or math.floor(end_s / every_s) > math.floor(begin_s / every_s)
        return data[:3] + data[4:] if hit else data

    def _stamp(self, sample: int) -> bytes:
        elapsed_s = sample / self.rate_hz
        stamp_ms = round(elapsed_s * 1000 * self._faults.stamp_clock)
        full = 0 < self._faults.full_buffer_at_s <= elapsed_s
        share = 100 if full else 1
        if self._binary:
            return b"\xf0\xf3" + stamp_ms.to_bytes(4, "big") + bytes((share,)) + b"\xff\xff"
        seconds, milliseconds = divmod(stamp_ms, 1000)
        # The firmware puts a NUL before the sample that follows.
        return f"TimeStamp: {seconds:03d}s {milliseconds:03d}ms, buff {share:02d}%\r\n".encode() + b"\0"


def number(text: str) -> float:
    """Read a number as the firmware does: ``3300m``, ``1k``, ``2-3`` (2e-3); NaN when it is none."""
    try:
        if text and text[-1] in SUFFIX:
            return float(text[:-1]) * SUFFIX[text[-1]]
        mantissa, minus, exponent = text.partition("-")
        return float(f"{mantissa}e-{exponent}") if minus and mantissa else float(text)
    except ValueError:
        return math.nan


def encode_ascii(value: float) -> bytes:
    """Write a value with four digits: 640.9e-6 is ``6409-07``."""
    if value <= 0:
        return b"0000-10\r\n"
    exponent = math.floor(math.log10(value)) - 3
    mantissa = round(value / 10.0**exponent)
    if mantissa > 9999:
        mantissa, exponent = 1000, exponent + 1
    return b"%04d%c%02d\r\n" % (mantissa, ord("-" if exponent < 0 else "+"), abs(exponent))


def encode_binary(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> bytes:
    """Write values with 12 bits each: 640.9e-6 is ``52 A0``."""
    safe = np.maximum(values, 16.0**-14)
    exponent = np.clip(np.floor(np.log(4095 / safe) / np.log(16)), 0, 14).astype(np.int64)
    digits = np.clip(np.round(values * 16.0**exponent), 0, 4095).astype(np.int64)
    return bytes((exponent << 12 | digits).astype(">u2").tobytes())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the emulator on a pty."""
    load, faults = parse("Emulates an ST X-NUCLEO-LPM01A on a pty.", Lpm01aFaults, argv, current_a=0.010)
    return serve(Lpm01aEmulator(load, faults))


if __name__ == "__main__":
    raise SystemExit(main())
