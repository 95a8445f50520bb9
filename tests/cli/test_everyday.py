"""The commands of everyday use on the digits bundles: each once in a fresh process, the rest in this one."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from ipj_edge.benchmark import BenchResult


def test_convert_says_what_came_of_it_as_json(digits_converted: Path) -> None:
    entries = json.loads((digits_converted / "convert.json").read_text())
    assert len(entries) == 6
    for entry in entries:
        assert entry["error"] is None
        assert Path(entry["bundle"]).is_dir()
        assert entry["accuracy"]["source"] >= 0.97
        assert entry["accuracy"]["source"] - entry["accuracy"]["bundle"] <= 0.01


def test_verify_proves_a_bundle(bundle: Path, ipj_edge_here: Callable) -> None:
    ran = ipj_edge_here("verify", bundle, "--threads", "1")
    assert ran.code == 0, ran
    assert ran.out.rstrip().endswith("verified")
    assert "requested: threads 1" in ran.out
    assert "effective: engine" in ran.out


def test_verify_writes_json(bundles: Path, ipj_edge_cli: Callable) -> None:
    ran = ipj_edge_cli("verify", bundles / "digits.tflite-cpu.fp32.ipj", "--json", "-")
    report = json.loads(ran.out)
    assert report["outputs"][0]["relative_l2"] <= 1e-4
    assert report["effective"][0]["engine"] == "ai-edge-litert"


@pytest.mark.parametrize("file", ["manifest.json", "model.tflite", "golden.npz"])
@pytest.mark.parametrize("command", ["verify", "inspect", "run", "bench"])
def test_a_flipped_byte_is_exit_code_9_and_names_the_file(
    bundles: Path, digits: Path, tmp_path: Path, ipj_edge_here: Callable, file: str, command: str
) -> None:
    copy = Path(shutil.copytree(bundles / "digits.tflite-cpu.int8.ipj", tmp_path / "damaged.ipj"))
    content = bytearray((copy / file).read_bytes())
    content[len(content) // 3] ^= 4
    (copy / file).write_bytes(content)
    ran = ipj_edge_here(command, copy, *([digits / "image.png"] if command == "run" else []))
    assert ran.code == 9, ran
    assert file in ran.err
    assert "Traceback" not in ran.err


def test_a_newer_manifest_is_exit_code_9(bundles: Path, tmp_path: Path, ipj_edge_here: Callable) -> None:
    copy = Path(shutil.copytree(bundles / "digits.tflite-cpu.int8.ipj", tmp_path / "newer.ipj"))
    text = (copy / "manifest.json").read_text()
    (copy / "manifest.json").write_text(text.replace('"schema_version": 1', '"schema_version": 7'))
    ran = ipj_edge_here("verify", copy)
    assert ran.code == 9
    assert "schema version 7" in ran.err


def test_run_prints_labels_and_scores(bundle: Path, digits: Path, ipj_edge_here: Callable) -> None:
    ran = ipj_edge_here("run", bundle, digits / "image.png", "--top", "2")
    assert ran.code == 0, ran
    with np.load(digits / "test.npz") as file:
        name = (digits / "digits.txt").read_text().split()[file["labels"][3]]
    lines = [line.split() for line in ran.out.splitlines()]
    assert ["label", "logits"] in lines
    assert lines[lines.index(["label", "logits"]) + 1][0] == name
    assert len(lines) == lines.index(["label", "logits"]) + 3


def test_run_takes_arrays_and_writes_json(bundles: Path, tmp_path: Path, ipj_edge_cli: Callable) -> None:
    np.savez(tmp_path / "x.npz", image=np.zeros((2, 1, 8, 8), np.float32))
    ran = ipj_edge_cli("run", bundles / "digits.onnxruntime-cpu.fp32.ipj", tmp_path / "x.npz", "--json", "-")
    assert np.shape(json.loads(ran.out)[0]["outputs"]["logits"]) == (2, 10)


def test_run_refuses_what_is_no_image(bundles: Path, digits: Path, ipj_edge_here: Callable) -> None:
    ran = ipj_edge_here("run", bundles / "digits.tflite-cpu.fp32.ipj", digits / "digits.txt")
    assert ran.code == 2
    assert "cannot read the image" in ran.err


@pytest.fixture(scope="module")
def benched(bundles: Path, digits: Path, tmp_path_factory: pytest.TempPathFactory, ipj_edge_cli: Callable) -> Any:
    """What a bench of the six bundles printed, and its result."""
    into = tmp_path_factory.mktemp("benched") / "result.json"
    options = ("--data", digits / "test.npz", "--json", into, "--window", "0.1")
    ran = ipj_edge_cli("bench", *sorted(bundles.iterdir()), *options)
    assert ran.code == 0, ran
    return ran, into


def test_bench_measures_six_bundles_in_one_table(benched: Any) -> None:
    ran, into = benched
    result = msgspec.json.decode(into.read_bytes(), type=BenchResult)
    assert len(result.results) == 6
    for entry in result.results:
        assert entry.bundle in ran.out
        assert entry.accuracy is not None
        assert entry.accuracy.low <= entry.accuracy.value <= entry.accuracy.high
        assert entry.accuracy.value >= 0.97
        assert 0 < entry.latency_s.p50 <= entry.latency_s.p90 <= entry.latency_s.p99
        assert entry.cpu_s_per_inference > 0
        energy = entry.joules_per_inference
        assert energy.value is not None or energy.reason
        if energy.value is not None:
            assert energy.value > 0
            assert entry.ipj is not None
            assert entry.ipj.value == pytest.approx(entry.accuracy.value / energy.value)
            assert energy.provenance in ran.out
            assert energy.boundary in ran.out
    numbers = _numbers(json.loads(into.read_text()))
    assert all(math.isfinite(value) for value in numbers)


def test_results_are_compared_ranked_and_shown(benched: Any, tmp_path: Path, ipj_edge_cli: Callable) -> None:
    _, result = benched
    compared = ipj_edge_cli("compare", result, result)
    assert compared.code == 0, compared
    ranked = ipj_edge_cli("pareto", result, "--json", "-")
    assert ranked.code == 0, ranked
    assert json.loads(ranked.out)
    shown = ipj_edge_cli("report", result, "-o", tmp_path / "report.html")
    assert shown.code == 0, shown
    assert "<!doctype html>" in (tmp_path / "report.html").read_text()


def _numbers(value: object) -> list[float]:
    if isinstance(value, dict):
        return [number for item in value.values() for number in _numbers(item)]
    if isinstance(value, list):
        return [number for item in value for number in _numbers(item)]
    return [float(value)] if isinstance(value, int | float) else []


def test_bench_without_data_or_probe_says_why_figures_are_missing(bundles: Path, ipj_edge_here: Callable) -> None:
    bundle = bundles / "digits.tflite-cpu.fp32.ipj"
    ran = ipj_edge_here("bench", bundle, "--probe", "none", "--window", "0.05", "--json", "-")
    assert ran.code == 0, ran
    entry = json.loads(ran.out)["results"][0]
    assert entry["accuracy"] is None
    assert "labels" in entry["accuracy_reason"]
    assert entry["joules_per_inference"]["value"] is None
    assert entry["joules_per_inference"]["reason"]
    assert entry["ipj"] is None


def test_bench_never_overwrites_a_result(bundles: Path, tmp_path: Path, ipj_edge_here: Callable) -> None:
    (tmp_path / "result.json").write_text("mine")
    ran = ipj_edge_here("bench", bundles / "digits.tflite-cpu.fp32.ipj", "--json", tmp_path / "result.json")
    assert ran.code == 2
    assert "--force" in ran.err
    assert (tmp_path / "result.json").read_text() == "mine"


def test_bench_refuses_data_that_does_not_fit(bundles: Path, tmp_path: Path, ipj_edge_here: Callable) -> None:
    np.savez(tmp_path / "bad.npz", image=np.zeros((4, 1, 9, 9), np.float32), labels=np.zeros(4, int))
    ran = ipj_edge_here("bench", bundles / "digits.tflite-cpu.fp32.ipj", "--data", tmp_path / "bad.npz")
    assert ran.code == 2
    assert "expected (N, 1, 8, 8)" in ran.err


def test_inspect_shows_what_the_manifest_holds(bundle: Path, ipj_edge_here: Callable, ipj_edge_cli: Callable) -> None:
    ran = ipj_edge_here("inspect", bundle)
    assert ran.code == 0, ran
    manifest = json.loads((bundle / "manifest.json").read_text())
    for text in ("(N, 1, 8, 8)", "456,704 MACs", "19,338 parameters", "parity: verified on target", "zero, one"):
        assert text in ran.out
    for record in manifest["files"]:
        assert record["path"] in ran.out
    if manifest["precision"] == "int8":
        assert "calibrated on 300 samples (image 0 to 1)" in ran.out
        assert "0 of" in ran.out
    assert json.loads(ipj_edge_cli("inspect", bundle, "--json", "-").out) == manifest


def test_targets_and_doctor_say_what_works_here(ipj_edge_cli: Callable) -> None:
    targets = json.loads(ipj_edge_cli("targets", "--json", "-").out)
    works = {target["name"]: target["availability"]["available"] for target in targets}
    assert works["openvino-cpu"]
    assert works["onnxruntime-cpu"]
    assert works["tflite-cpu"]
    ran = ipj_edge_cli("doctor")
    assert ran.code == 0, ran
    for text in ("python", "cpus", "target openvino-cpu", "probe rapl", "probe modelled"):
        assert text in ran.out


def test_more_threads_than_wanted_cannot_sneak_in(bundles: Path, ipj_edge_cli: Callable) -> None:
    for target in ("openvino-cpu", "onnxruntime-cpu", "tflite-cpu"):
        ran = ipj_edge_cli("verify", bundles / f"digits.{target}.fp32.ipj", "--threads", "1", "--json", "-")
        report = json.loads(ran.out)
        assert report["requested"]["threads"] == report["effective"][0]["threads"] == 1
