"""The four MLPerf Tiny tasks end to end: reference models, quality targets, that benchmark's reporting form."""

import runpy
from pathlib import Path

import msgspec
import pytest

from ipj_edge.benchmark.result.files import read_result

EXAMPLE = Path(__file__).parents[3] / "examples" / "mlperf_tiny.py"


@pytest.fixture(scope="module")
def prepared(data_folder, tmp_path_factory):
    """The suite with windows of a twentieth of a second: quality is what is checked here."""
    into = tmp_path_factory.mktemp("tiny")
    runpy.run_path(str(EXAMPLE))["prepare"](data_folder, into, window_s=0.05)
    return into


@pytest.mark.slow
@pytest.mark.data
def test_the_four_tasks_reach_their_quality_where_there_is_data(prepared, ipj_edge_cli):
    out = prepared / "result.json"
    ran = ipj_edge_cli("bench", "--suite", prepared / "suite.toml", "--probe", "modelled", "--json", out, "--force")
    assert ran.code == 0, ran
    entries = {entry.bundle.split(".")[0]: entry for entry in read_result(out).results}
    assert sorted(entries) == ["ad", "ic", "kws", "vww"]
    # Known from the reference engine: 902 of 1,000 and 0.878.
    assert entries["kws"].accuracy.value == pytest.approx(0.902, abs=0.002)
    assert entries["ic"].accuracy.value == pytest.approx(0.878, abs=0.003)
    assert entries["vww"].accuracy.value >= 0.80
    for task in ("kws", "ic", "vww"):
        assert entries[task].targets[0].met
    assert entries["ad"].targets == ()  # nothing to judge it by: the folder has no labels for it
    assert all(len(entry.windows) == 5 for entry in entries.values())
    assert "top-1 0.9020, target 0.9: met" in ran.out
    rows = runpy.run_path(str(EXAMPLE))["tiny_row"]
    text = rows(entries["kws"])
    assert "top-1 0.9020 ≥ 0.9" in text
    assert "at least 10 s" in text
    assert "joules are modelled" in text


@pytest.mark.slow
@pytest.mark.data
def test_a_quality_target_that_is_missed_is_exit_code_5(prepared, ipj_edge_cli, tmp_path):
    suite = prepared / "strict.toml"
    text = (prepared / "suite.toml").read_text()
    head, keywords, *_ = text.split("[[sweep]]")
    suite.write_text(f"{head}[[sweep]]{keywords}".replace("90%", "95%"))
    ran = ipj_edge_cli("bench", "--suite", suite, "--probe", "none", "--json", tmp_path / "r.json")
    assert ran.code == 5, ran
    assert "target 0.95: MISSED" in ran.out
    (entry,) = read_result(tmp_path / "r.json").results
    assert entry.targets[0].met is False


def test_the_reporting_form_is_the_median_of_five_windows():
    from ipj_edge.benchmark.compare.quality_targets import tiny_form
    from ipj_edge.benchmark.result.schema import Entry, WindowRecord

    same = {"seconds": 10.5, "inferences": 1000, "queries": 1000, "cpu_s": 1.0, "p50_s": 0.01, "p99_s": 0.02}
    windows = [
        WindowRecord(start_s=11.0 * n, joules=joules, **same) for n, joules in enumerate((7.1, 6.9, 7.0, 9.0, 6.95))
    ]
    entry = msgspec.convert(
        {
            "bundle": "b", "digest": "", "target": "t", "precision": "int8", "scenario": "single-stream",
            "requested": {}, "effective": [], "bytes": 1, "accuracy": None, "inferences": 5000,
            "latency_s": {"p50": 1.0, "p90": 1.0, "p99": 1.0, "mean": 1.0}, "cpu_s_per_inference": 1.0,
            "throughput_hz": 1.0, "contention": False, "ipj": None, "joules_per_correct": None, "exit_rates": [1.0],
            "joules_per_inference": {"value": 0.0074, "provenance": "measured", "boundary": "board", "probe": "lpm01a",
                                     "windows": 5, "inferences": 5000},
            "windows": [msgspec.to_builtins(window) for window in windows],
        },
        Entry,
    )  # fmt: skip
    form = tiny_form(entry)
    assert form.joules_per_inference == pytest.approx(0.007)
    assert form.joules_range == pytest.approx((0.0069, 0.009))
    assert form.inferences_per_s == pytest.approx(1000 / 10.5)
    assert form.by_the_rules
    short = msgspec.structs.replace(entry, windows=entry.windows[:4])
    assert not tiny_form(short).by_the_rules
