"""Entries of known figures."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from intervals import mean_interval

from ipj_edge.benchmark.result.intelligence import energy_delay_product, intelligence_per_joule, joules_per_correct
from ipj_edge.benchmark.result.latencies import Histogram
from ipj_edge.benchmark.result.schema import Accuracy, BenchResult, Entry, Latency, WindowRecord
from ipj_edge.values import EffectiveSettings, EnergyPerInference, Settings


def _windows(rng, count, noise, slower, has_joules):
    windows = []
    for index in range(count):
        shift = slower * (1 + noise * rng.standard_normal())
        windows.append(
            WindowRecord(
                start_s=1.1 * index,
                seconds=1.0,
                inferences=1000,
                queries=1000,
                joules=4.0 * shift if has_joules else None,
                reason="" if has_joules else "no probe was asked for",
                cpu_s=0.9 * shift,
                waited_s=0.0,
                busy_s=0.99 * shift,
                p50_s=0.9e-3 * shift,
                p99_s=1.5e-3 * shift * (1 + noise * rng.standard_normal()),
            )
        )
    return tuple(windows)


def _energy(windows, probe):
    joules = [window.joules / window.inferences for window in windows if window.joules is not None]
    interval = mean_interval(joules) if len(joules) > 1 else None
    return EnergyPerInference(
        value=interval and interval.value,
        reason="" if interval else "no probe was asked for",
        low=interval and interval.low,
        high=interval and interval.high,
        provenance=probe[1],
        boundary=probe[2],
        probe=probe[0],
        windows=len(joules),
        inferences=1000 * len(windows),
    )


def _entry(
    bundle="net.tflite-cpu.int8.ipj",
    *,
    seed=0,
    noise=0.02,
    slower=1.0,
    windows=5,
    accuracy=0.95,
    probe=("rapl", "measured", "package"),
    has_joules=True,
    **fields,
):
    rng = np.random.default_rng(seed)
    records = _windows(rng, windows, noise, slower, has_joules)
    energy = _energy(records, probe)
    top1 = None if accuracy is None else Accuracy(value=accuracy, low=accuracy - 0.01, high=accuracy + 0.01, n=1000)
    _, target, precision, _ = bundle.rsplit(".", 3)
    ipj = intelligence_per_joule(top1, energy)
    entry = Entry(
        bundle=bundle,
        digest="d" * 64,
        data_sha256="a" * 64,
        target=target,
        precision=precision,
        scenario="single-stream",
        requested=Settings(),
        effective=(
            EffectiveSettings(engine="e", engine_version="1", threads=2, execution_precision="int8", affinity=2),
        ),
        bytes=30_000,
        accuracy=top1,
        accuracy_reason="" if top1 else "no labels were given",
        latency_s=Latency(p50=0.9e-3 * slower, p90=1.2e-3 * slower, p99=1.5e-3 * slower, mean=1e-3 * slower),
        inferences=5000,
        cpu_s_per_inference=float(np.mean([record.cpu_s for record in records])) / 1000,
        throughput_hz=1000 / slower,
        contention=False,
        joules_per_inference=energy,
        ipj=ipj,
        joules_per_correct=joules_per_correct(ipj),
        energy_delay_js=energy_delay_product(energy, 1e-3),
        exit_rates=(1.0,),
        windows=records,
        latency_histogram=Histogram(edges_s=(8e-4, 1e-3, 2e-3), counts=(4000, 1000)),
    )
    return msgspec.structs.replace(entry, **fields)


@pytest.fixture
def make_entry():
    """Return a function that makes an entry: noise and slowness of its windows as asked for."""
    return _entry


@pytest.fixture
def result_with():
    """Return a function that puts entries together."""

    def make(*entries, **fields):
        whole = {"version": 2, "created_with": {"ipj-edge": "0.1.0"}, "environment": {"cpu": "a CPU"}, "data": None}
        return BenchResult(**(whole | fields), results=tuple(entries))

    return make
