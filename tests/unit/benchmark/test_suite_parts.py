"""Parts of a suite: what its fingerprint covers, and rounds joined into one measurement."""

import msgspec
import numpy as np
import pytest

from ipj_edge.benchmark.result.latencies import Latencies
from ipj_edge.benchmark.result.schema import WindowRecord
from ipj_edge.benchmark.result.trace import PowerTrace
from ipj_edge.benchmark.run.measured import Measured, Warmth, merged, steadiness
from ipj_edge.benchmark.run.runner import BenchOptions
from ipj_edge.benchmark.suite.file import load_suite
from ipj_edge.values import Reading


@pytest.fixture
def suite(tmp_path):
    bundle = tmp_path / "net.tflite-cpu.int8.ipj"
    bundle.mkdir()
    (bundle / "manifest.json").write_text("{}")
    (tmp_path / "suite.toml").write_text('[[sweep]]\nbundles = ["*.ipj"]')
    return tmp_path / "suite.toml"


def test_cells_measured_before_the_exits_were_tuned_anew_do_not_mix_with_those_after(suite):
    """exits.json is the one file of a bundle that may change, and it changes what is measured."""
    before = load_suite(suite, BenchOptions()).fingerprint
    assert load_suite(suite, BenchOptions()).fingerprint == before
    exits = suite.parent / "net.tflite-cpu.int8.ipj" / "exits.json"
    exits.write_text("{}")
    tuned = load_suite(suite, BenchOptions()).fingerprint
    exits.write_text("{ }")
    assert len({before, tuned, load_suite(suite, BenchOptions()).fingerprint}) == 3


def test_cells_of_another_version_do_not_mix(suite, monkeypatch):
    before = load_suite(suite, BenchOptions()).fingerprint
    monkeypatch.setattr("ipj_edge.__version__", "99.0")
    assert load_suite(suite, BenchOptions()).fingerprint != before


def _round():
    reading = Reading(
        joules=1.0, seconds=1.0, provenance="measured", boundary="board", probe="p", update_interval_s=0.1
    )
    window = WindowRecord(
        start_s=1.0, seconds=1.0, queries=1, inferences=1, busy_s=1.0, cpu_s=1.0, p50_s=1.0, p99_s=1.0, joules=1.0
    )
    latencies = Latencies()
    latencies.add(np.array([1.0]))
    # Idle for a second, a window, idle for a second.
    trace = PowerTrace(time_s=(0.3, 0.7, 1.5, 2.3, 2.7), power_w=(1.0, 1.0, 5.0, 1.0, 1.0))
    return Measured(
        windows=(window,), readings=(reading,), idle=(), latencies=latencies, samples_per_query=1,
        warmth=Warmth(seconds=1.0, queries=1, settled=True), stopped_by="duration", trace=trace,
    )  # fmt: skip


def test_the_power_of_joined_rounds_runs_on_and_lies_where_its_windows_lie():
    whole = merged([_round(), _round(), _round()])
    times = whole.trace.time_s
    assert list(times) == sorted(set(times))
    for window in whole.windows:
        inside = [w for t, w in zip(times, whole.trace.power_w, strict=True) if 0 < t - window.start_s < window.seconds]
        assert inside == [5.0]
    assert msgspec.json.decode(msgspec.json.encode(whole.trace), type=PowerTrace) == whole.trace


def test_a_lost_window_does_not_let_a_bench_stop_on_calm_cpu_time_while_its_joules_are_noisy():
    window = _round().windows[0]
    noisy = [msgspec.structs.replace(window, joules=joules) for joules in (1.0, 2.0, None, 1.0, 2.0)]
    assert steadiness(noisy) > 0.3
    without = [msgspec.structs.replace(one, joules=None) for one in noisy]
    assert steadiness(without) == 0.0
