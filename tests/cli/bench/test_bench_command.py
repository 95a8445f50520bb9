"""`ipj-edge bench` as a user runs it, on a target of known speed."""

import json
import math
import signal
import subprocess
import sys

import msgspec
import numpy as np
import pytest
from command_line import ended, lines_until

from ipj_edge.benchmark import BenchResult
from ipj_edge.benchmark.result.files import read_result
from ipj_edge.testing.hwmon import FakeSysfs

QUICK = ("--window", "0.05", "--windows", "3", "--probe", "modelled", "--error", "50%")


def test_a_required_measurement_that_fails_in_every_window_is_exit_code_8(spin_bundle, tmp_path, ipj_edge_cli):
    """A meter that can be opened and then shows nothing must not let a gate in CI pass without joules."""
    sysfs = FakeSysfs(tmp_path / "sys")
    sysfs.hwmon("ltc2947", {"energy1_input": 1_000_000})
    options = ("--probe", "hwmon", "--sysfs-root", sysfs.root, "--windows", "2", "--window", "0.05", "--error", "90%")
    ran = ipj_edge_cli("bench", spin_bundle(tmp_path), *options, "--require-measured")
    assert ran.code == 8, ran
    assert "did not move" in ran.err
    ran = ipj_edge_cli("bench", spin_bundle(tmp_path, name="other"), *options)
    assert ran.code == 0, ran


def test_every_scenario_is_an_entry_with_its_own_figures(spin_bundle, labelled, tmp_path, ipj_edge_cli):
    bundle, out = spin_bundle(tmp_path, spin_s=0.0005), tmp_path / "r.json"
    scenarios = [part for name in ("single-stream", "multi-stream", "offline") for part in ("--scenario", name)]
    ran = ipj_edge_cli("bench", bundle, "--data", labelled, *scenarios, *QUICK, "--json", out)
    assert ran.code == 0, ran
    single, multi, offline = read_result(out).results
    assert [entry.samples_per_query for entry in (single, multi, offline)] == [1, 8, 32]
    for entry in (single, multi, offline):
        assert entry.latency_s.p50 >= 0.0005
        assert entry.cpu_s_per_inference * entry.samples_per_query == pytest.approx(0.0005, rel=0.5)
        assert entry.accuracy.value == pytest.approx(0.9)
        assert entry.inferences == sum(window.inferences for window in entry.windows)
        assert entry.joules_per_inference.provenance == "modelled"
        assert entry.macs == 1000
    assert offline.throughput_hz > 10 * single.throughput_hz
    with np.load(tmp_path / "r.samples.npz") as raw:
        assert len(raw.files) == 3
        assert np.percentile(raw["latency_s/0"], 50) == pytest.approx(single.latency_s.p50)


def test_a_pace_counts_the_gaps_in_joules_and_the_duty_in_cpu_time(spin_bundle, tmp_path, ipj_edge_cli):
    bundle, out = spin_bundle(tmp_path, spin_s=0.001), tmp_path / "r.json"
    pace = ("--every", "20ms", "--window", "0.2", "--windows", "3", "--probe", "modelled", "--idle-power", "5")
    ran = ipj_edge_cli("bench", bundle, *pace, "--error", "50%", "--json", out)
    assert ran.code == 0, ran
    (entry,) = read_result(out).results
    assert entry.every_s == 0.02
    assert entry.throughput_hz == pytest.approx(50, rel=0.2)
    assert 0.001 <= entry.cpu_s_per_inference < 0.01
    # 5 W for the 20 ms of a slot, and the busy millisecond on top.
    assert entry.joules_per_inference.value >= 0.095
    assert "every 20.00 ms" in ran.out


def test_further_metrics_tariff_csv_and_markdown(spin_bundle, labelled, tmp_path, ipj_edge_cli):
    (tmp_path / "tariff.toml").write_text("pue = 1.0\nintensity_g_per_kwh = 300\nprice_per_kwh = 0.3\n")
    (tmp_path / "own.py").write_text("def right(outputs, labels):\n    return outputs['logits'].argmax(1) == labels\n")
    metrics = [part for name in ("top-1", "top-2", "f1", "own:right") for part in ("--metric", name)]
    ran = ipj_edge_cli(
        "bench", spin_bundle(tmp_path), "--data", labelled, *metrics, *QUICK, "--tariff", tmp_path / "tariff.toml",
        "--json", tmp_path / "r.json", "--csv", tmp_path / "r.csv", "--markdown", tmp_path / "r.md", cwd=tmp_path,
    )  # fmt: skip
    assert ran.code == 0, ran
    (entry,) = read_result(tmp_path / "r.json").results
    assert [score.metric for score in entry.quality] == ["top-1", "top-2", "f1", "own:right"]
    assert entry.quality[3].value == entry.accuracy.value
    assert entry.cost.carbon_g.value == pytest.approx(1000 * entry.joules_per_inference.value / 3.6e6 * 300)
    assert (tmp_path / "r.csv").read_text().count("\n") == 2
    assert "| `work.spin-cpu.fp32.ipj` |" in (tmp_path / "r.md").read_text()
    assert "f1 0.89" in ran.out


def test_a_bundle_slower_than_its_fp32_twin_is_flagged(spin_bundle, tmp_path, ipj_edge_cli):
    slow = spin_bundle(tmp_path, spin_s=0.002, precision="int8")
    ran = ipj_edge_cli("bench", spin_bundle(tmp_path), slow, *QUICK)
    assert ran.code == 0, ran
    assert "no gain over its fp32 twin work.spin-cpu.fp32.ipj" in ran.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "give either bundles or --suite"),
        (("none.ipj",), 9, "none.ipj"),
        (("{bundle}", "--scenario", "single-stream", "--batch", "4"), 2, "multi-stream or offline"),
        (("{bundle}", "--every", "5%"), 2, "a time above 0"),
        (("{bundle}", "--probe", "rapl", "--sysfs-root", "/none"), 8, "asked for by name"),
        (("{bundle}", "--json", "same.txt", "--csv", "./same.txt"), 2, "only one output can go to"),
        (("{bundle}", "--metric", "speed"), 2, "unknown metric"),
        (("{bundle}", "--data", "none.npz"), 2, "no such file"),
        (("{bundle}", "--json", "-", "--csv", "-"), 2, "stdout"),
        (("{bundle}", "--json", "none/r.json"), 2, "folder does not exist"),
        (("{bundle}", "--tariff", "none.toml"), 2, "cannot read the tariff"),
        (("{bundle}", "--suite", "none.toml"), 2, "either bundles or"),
        (("--suite", "none.toml"), 2, "needs --json"),
        (("--suite", "none.toml", "--json", "r.json"), 2, "cannot read the suite"),
        (("{bundle}", "--require-measured", "--sysfs-root", "/none"), 8, "measured figure is required"),
    ],
)
def test_a_bench_that_measured_nothing_never_exits_0(
    spin_bundle, labelled, tmp_path, ipj_edge_cli, arguments, code, said
):
    bundle = str(spin_bundle(tmp_path))
    given = [argument.replace("{bundle}", bundle) for argument in arguments]
    if "--metric" in given:
        given += ["--data", str(labelled)]
    ran = ipj_edge_cli("bench", *given, cwd=tmp_path)
    assert ran.code == code, ran
    assert said in ran.err
    assert "Traceback" not in ran.err
    assert not (tmp_path / "r.json").exists()


def test_what_was_measured_before_an_error_is_kept(spin_bundle, tmp_path, ipj_edge_cli):
    ran = ipj_edge_cli("bench", spin_bundle(tmp_path), tmp_path / "none.ipj", *QUICK, "--json", tmp_path / "r.json")
    assert ran.code == 9
    assert "1 of 2 measurements were done" in ran.err
    assert len(read_result(tmp_path / "r.json").results) == 1


def test_an_existing_result_or_report_is_not_overwritten_without_force(spin_bundle, tmp_path, ipj_edge_cli):
    bundle = spin_bundle(tmp_path)
    for option, name in (("--json", "r.json"), ("--csv", "r.csv"), ("--markdown", "r.md"), ("--report", "r.html")):
        (tmp_path / name).write_text("mine")
        ran = ipj_edge_cli("bench", bundle, *QUICK, option, tmp_path / name)
        assert ran.code == 2
        assert "--force" in ran.err
        assert (tmp_path / name).read_text() == "mine"
    ran = ipj_edge_cli(
        "bench", bundle, *QUICK, "--json", tmp_path / "r.json", "--report", tmp_path / "r.html", "--force"
    )
    assert ran.code == 0, ran
    assert "<!doctype html>" in (tmp_path / "r.html").read_text()


def test_an_interrupt_prints_what_was_measured(spin_bundle, tmp_path, start_ipj_edge):
    first, second = spin_bundle(tmp_path / "a"), spin_bundle(tmp_path / "b", name="long", spin_s=1.0)
    child = start_ipj_edge(
        "bench", first, second, "--window", "0.3", "--windows", "3",
        "--probe", "none", "--error", "0.1%", "--json", tmp_path / "r.json",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    # The second takes seconds an inference: it cannot be done before the signal arrives.
    seen = lines_until(child, child.stderr, "done")
    child.send_signal(signal.SIGINT)
    out, err = ended(child)
    err = seen + err
    assert child.returncode == 130, err
    assert "1 of 2 measurements were done" in err
    assert "work.spin-cpu.fp32.ipj" in out
    assert len(read_result(tmp_path / "r.json").results) == 1


def test_the_result_holds_numbers_and_no_nan(spin_bundle, tmp_path, ipj_edge_cli):
    ran = ipj_edge_cli("bench", spin_bundle(tmp_path), *QUICK, "--json", "-")
    assert ran.code == 0, ran
    document = json.loads(ran.out, parse_constant=lambda name: pytest.fail(f"{name} in the JSON"))
    msgspec.json.decode(ran.out, type=BenchResult, strict=True)

    def walk(value):
        if isinstance(value, dict):
            return [one for item in value.values() for one in walk(item)]
        if isinstance(value, list):
            return [one for item in value for one in walk(item)]
        return [value] if isinstance(value, int | float) else []

    numbers = walk(document)
    assert len(numbers) > 50
    assert all(math.isfinite(number) for number in numbers)


PEAK = """
import resource, sys
from ipj_edge.benchmark import BenchOptions, bench
options = BenchOptions(probe="none", windows=1, window_s=float(sys.argv[2]))
result = bench([sys.argv[1]], options).results[0]
print(result.inferences, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_a_run_of_100_000_samples_uses_bounded_memory(spin_bundle, tmp_path):
    bundle = spin_bundle(tmp_path, spin_s=0.0)
    peaks = {}
    for seconds in ("0.02", "5"):
        out = subprocess.run([sys.executable, "-c", PEAK, bundle, seconds], capture_output=True, text=True, check=True)
        inferences, peak_kb = map(int, out.stdout.split())
        peaks[inferences] = peak_kb
    few, many = sorted(peaks)
    assert many > 100_000
    assert peaks[many] - peaks[few] < 8 * 1024
