"""What reading serial meters costs: CPU time of a PPK2 stream at full rate, memory of an hour of LPM01A.

Run: python -m benchmarks.energy.ppk2_decoding. Exits 1 when a limit is missed: 15 % of one core, 50 MB.
"""

from __future__ import annotations

import time
import tracemalloc

from ipj_edge.values import ProbeOptions
from ipj_edge_probes.serial.emulation.dialogue import ScriptedPort
from ipj_edge_probes.serial.emulation.profile import constant, parse_steps
from ipj_edge_probes.serial.emulation.pty_host import PtyHost
from ipj_edge_probes.serial.lpm01a.emulator import Lpm01aEmulator, encode_ascii
from ipj_edge_probes.serial.lpm01a.probe import Lpm01aMeter
from ipj_edge_probes.serial.port import SerialPort, open_port
from ipj_edge_probes.serial.ppk2.emulator import Ppk2Emulator, Ppk2Faults, metadata_text
from ipj_edge_probes.serial.ppk2.probe import Ppk2Meter
from ipj_edge_probes.serial.stream_sampler import StreamSampler

CPU_LIMIT = 0.15
MEMORY_LIMIT_BYTES = 50e6
STREAM_S = 20
CHUNK_S = Ppk2Meter.pace_s


def ppk2_meter() -> Ppk2Meter:
    metadata = metadata_text(Ppk2Faults(), 3000, 2).encode()
    turns = [
        (b"\x07", None),
        (b"\x19", metadata),
        (b"\x0d\x0b\xb8", None),
        (b"\x11\x02", None),
        (b"\x0c\x01", None),
    ]
    return Ppk2Meter(ScriptedPort(turns), voltage_v=3.0, mode="source")


def decoding_share() -> float:
    """Return CPU seconds per second of PPK2 stream, decoding alone, in the chunks the reader sees."""
    emulator = Ppk2Emulator(parse_steps("0:0.010,5:0.100,10:0.00002,15:0.001"))
    for command in (b"\x0c\x01", b"\x06"):
        emulator.receive(command, 0.0)
    chunks = [emulator.produce(n * CHUNK_S) for n in range(1, round(STREAM_S / CHUNK_S))]
    meter = ppk2_meter()
    begin_s = time.process_time()
    for chunk in chunks:
        meter.feed(chunk)
    return (time.process_time() - begin_s) / STREAM_S


class Recording:
    """A port that plays a recorded stream at the pace the clock says, all in this process."""

    name = "recording"

    def __init__(self, data: bytes, bytes_per_s: float) -> None:
        self._data, self._bytes_per_s, self._position = data, bytes_per_s, 0
        self._began_s = time.monotonic()

    def write(self, data: bytes) -> None:
        """Take no orders."""

    def read(self, timeout_s: float) -> bytes:
        """Return what is due."""
        due = int((time.monotonic() - self._began_s) * self._bytes_per_s)
        data = self._data[self._position : due]
        self._position = max(due, self._position)
        return data

    def close(self) -> None:
        """Do nothing."""


def sampling_share() -> float:
    """Return CPU seconds per second of a whole sampler: thread, decoding, clock fit, ten drains a second."""
    emulator = Ppk2Emulator(parse_steps("0:0.010"))
    for command in (b"\x0c\x01", b"\x06"):
        emulator.receive(command, 0.0)
    meter = ppk2_meter()
    stream: SerialPort = Recording(emulator.produce(10.0), 400_000)
    meter.port = stream
    meter.begin = lambda: None  # type: ignore[method-assign]
    sampler = StreamSampler(meter)
    sampler.start()
    begin_s, cpu_s = time.monotonic(), time.process_time()
    while time.monotonic() < begin_s + 5:
        time.sleep(0.1)
        sampler.drain()
    share = (time.process_time() - cpu_s) / (time.monotonic() - begin_s)
    sampler.stop()
    return share


def hour_of_lpm01a() -> float:
    """Return the peak bytes of an hour of 1 ksample/s that nobody drains, and then drains at once."""
    emulator = Lpm01aEmulator(constant(0.010))
    with PtyHost(emulator) as host:
        port = open_port("lpm01a", ProbeOptions(port=host.port), baud=3_686_400)
        meter = Lpm01aMeter(port, output="energy", voltage_v=3.0)
    sampler = StreamSampler(meter)
    lines = encode_ascii(30e-6) * 20
    tracemalloc.start()
    for step in range(180_000):
        second, part = divmod(step, 50)
        stamp = b"TimeStamp: %03ds 000ms, buff 01%%\r\n" % second if part == 0 else b""
        sampler._take(meter.feed(stamp + lines), step * 0.02)
    times_s, _ = sampler._store.take()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"one hour of LPM01A: {len(times_s)} samples kept, one each {3600 / len(times_s) * 1000:.1f} ms")
    return float(peak)


def main() -> int:
    decoding, sampling, peak = decoding_share(), sampling_share(), hour_of_lpm01a()
    print(f"PPK2 at 100 ksamples/s, CPU time of one core (limit {CPU_LIMIT:.0%}):")
    print(f"    decoding {decoding:.1%}, whole sampler {sampling:.1%}")
    print(f"LPM01A, one hour at 1 ksample/s: peak {peak / 1e6:.1f} MB (limit {MEMORY_LIMIT_BYTES / 1e6:.0f} MB)")
    return int(max(decoding, sampling) > CPU_LIMIT or peak > MEMORY_LIMIT_BYTES)


if __name__ == "__main__":
    raise SystemExit(main())
