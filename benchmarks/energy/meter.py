"""What measuring costs: reading RAPL's zones, a meter that only waits, and sampled power at two rates.

    python -m benchmarks.energy.meter

RAPL's files here are plain files; a real kernel adds the time of its register reads (a few microseconds a zone).
"""

from __future__ import annotations

import resource
import statistics
import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np

from ipj_edge.energy import Meter, PolledSampler
from ipj_edge.testing.powercap import two_sockets
from ipj_edge.testing.sensors import HandProbe, HandSampler, ManualClock
from ipj_edge.values import ProbeFacts, ProbeOptions, Rail
from ipj_edge_probes.sysfs.rapl import RaplProbe

BOARD = [Rail(name="input", boundary="board")]


def facts(update_interval_s):
    return ProbeFacts(name="bench", boundary="board", provenance="measured", update_interval_s=update_interval_s)


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def cpu_share(meter, seconds=5.0):
    """Return the CPU time of an open window over its length, the work being a sleep."""
    with meter:
        before = cpu_seconds()
        with meter.window():
            time.sleep(seconds)
        return (cpu_seconds() - before) / seconds


def zone_read_us(options):
    counter = RaplProbe().open(options)
    spans = []
    for _ in range(5000):
        start = time.perf_counter()
        counter.read()
        spans.append(time.perf_counter() - start)
    counter.close()
    return len(counter.rails), 1e6 * statistics.median(spans), 1e6 * sorted(spans)[int(0.99 * len(spans))]


def window_us(options):
    spans = []
    with Meter(["rapl"], options=options) as meter:
        for _ in range(500):
            start = time.perf_counter()
            with meter.window():
                pass
            spans.append(time.perf_counter() - start)
    return 1e6 * statistics.median(spans)


def stream(rate_hz, seconds):
    """Return CPU seconds a second of stream and peak bytes the meter needs for a stream of samples."""
    clock = ManualClock()

    class Stream(HandSampler):
        def drain(self):
            times_s = np.arange(self.next, clock.now_s, 1 / rate_hz)
            self.next = times_s[-1] + 1 / rate_hz if times_s.size else self.next
            return {"input": (times_s, np.full(times_s.size, 0.01))}

    sampler = Stream(facts(1 / rate_hz), BOARD)
    sampler.next = clock.now_s
    meter = Meter([HandProbe(sampler)], clocks=clock.clocks)
    tracemalloc.start()
    before = cpu_seconds()
    with meter, meter.window():
        track = meter._tracks[0]
        for _ in range(seconds):
            clock.advance(1.0)
            track.pump()
    used = cpu_seconds() - before
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return used / seconds, peak


def main():
    with tempfile.TemporaryDirectory() as folder:
        tree = two_sockets(Path(folder) / "sys")
        options = ProbeOptions(sysfs_root=str(tree.sysfs))
        zones, median, p99 = zone_read_us(options)
        print(f"read {zones} RAPL zones of two sockets: {median:.1f} µs median, {p99:.1f} µs p99 (limit 100)")
        print(f"an empty window over them: {window_us(options):.1f} µs")
        print(f"rapl meter, waiting: {100 * cpu_share(Meter(['rapl'], options=options)):.3f} % of a core (limit 1)")
        energy = tree.sysfs / "class/powercap/intel-rapl:0/energy_uj"
        polled = PolledSampler(facts(0.1), BOARD, lambda: {"input": int(energy.read_text()) * 1e-6}, 0.1)
        print(f"a file polled at 10 Hz: {100 * cpu_share(Meter([HandProbe(polled)])):.3f} % of a core (limit 1)")
    for rate_hz, seconds in ((1000, 3600), (100_000, 60)):
        share, peak = stream(rate_hz, seconds)
        print(f"{rate_hz} samples/s for {seconds} s: {100 * share:.2f} % of a core, {peak / 1e6:.1f} MB (limit 50)")


if __name__ == "__main__":
    main()
