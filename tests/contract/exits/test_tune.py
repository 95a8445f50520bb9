"""``ipj-edge exits tune`` on real bundles: certified or refused, and void for anything else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ipj_edge
from ipj_edge.exits import read_exits
from ipj_edge.testing.hwmon import FakeSysfs


@pytest.fixture
def copy(exit_bundles: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exit_bundles / "exits.onnxruntime-cpu.int8.ipj", tmp_path / "exits.ipj"))


@pytest.fixture
def tuned(copy: Path, exit_data: Path, ipj_edge_cli: Callable) -> Path:
    ran = ipj_edge_cli(
        "exits", "tune", copy, "--data", exit_data / "tune.npz", "--max-harm", "5pp", "--objective", "macs",
        "--threads", "1", "--window", "0.02", "--json", copy.parent / "tuned.json",
    )  # fmt: skip
    assert ran.code == 0, ran
    assert "certified: harm at most 5.00% at 95% confidence" in ran.out
    return copy


def test_a_certified_policy_is_used_when_the_bundle_is_loaded(tuned: Path, exit_data: Path) -> None:
    with np.load(exit_data / "test.npz") as file:
        images, labels = file["image"], file["labels"]
    with ipj_edge.load(tuned, threads=1) as model, ipj_edge.load(tuned, threads=1, exits="off") as full:
        assert model.policy is not None
        answers, reference = model.run(images), full.run(images)
    harmed = (answers.outputs["final"].argmax(1) != labels) & (reference.outputs["final"].argmax(1) == labels)
    assert harmed.mean() <= 0.05
    assert (answers.exit_indices < 2).mean() > 0.2


def test_the_result_has_policy_certificate_costs_and_front(tuned: Path) -> None:
    result = json.loads((tuned.parent / "tuned.json").read_text())
    certificate = result["record"]["certificate"]
    assert certificate["method"] == "exact-binomial"
    assert certificate["p_value"] <= 0.05
    assert certificate["files"].keys() == {"model.onnx", "stage1.onnx", "stage2.onnx", "stage3.onnx"}
    assert result["record"]["costs"]["unit"] == "MAC"
    assert len(result["front"]) > 1
    assert result["record"] == json.loads((tuned / "exits.json").read_text())


def test_the_report_shows_what_tune_wrote(tuned: Path, exit_data: Path, ipj_edge_cli: Callable) -> None:
    folder = tuned.parent
    ran = ipj_edge_cli(
        "bench", tuned, "--data", exit_data / "test.npz", "--threads", "1", "--window", "0.05", "--json",
        folder / "result.json",
    )  # fmt: skip
    assert ran.code == 0, ran
    ran = ipj_edge_cli("report", folder / "result.json", folder / "tuned.json", "-o", folder / "report.html")
    assert ran.code == 0, ran
    page = (folder / "report.html").read_text()
    assert "What the stages cost" in page
    assert '"name":"exits.ipj"' in page.replace(" ", "")


@pytest.mark.parametrize("batch", [1, 8])
def test_joules_are_priced_at_the_batch_they_are_wanted_for(
    copy: Path, exit_data: Path, ipj_edge_cli: Callable, batch: int
) -> None:
    ran = ipj_edge_cli(
        "exits", "tune", copy, "--data", exit_data / "tune.npz", "--max-harm", "5pp", "--batch", batch,
        "--threads", "1", "--window", "0.02", "--probe", "modelled", "--json", "-",
    )  # fmt: skip
    assert ran.code in (0, 5), ran
    record = json.loads(ran.out)["record"]
    assert record["costs"]["unit"] == "J"
    fixed = [stage["fixed"] for stage in record["costs"]["stages"]]
    # What a call costs beside its rows only shows in a larger batch; deadlines know it in any case.
    assert (sum(fixed) > 0) == (batch > 1)
    assert sum(stage["fixed"] for stage in record["times"]["stages"]) > 0


def test_bench_reports_the_share_of_every_exit(tuned: Path, exit_data: Path, ipj_edge_cli: Callable) -> None:
    ran = ipj_edge_cli(
        "bench", tuned, "--data", exit_data / "test.npz", "--threads", "1", "--window", "0.05", "--json", "-"
    )
    assert ran.code == 0, ran
    (entry,) = json.loads(ran.out)["results"]
    assert len(entry["exit_rates"]) == 3
    assert sum(entry["exit_rates"]) == pytest.approx(1)
    assert entry["exit_rates"][0] > 0.05
    assert entry["accuracy"]["value"] >= 0.9


def test_a_deadline_takes_the_deepest_exit_that_fits(tuned: Path, exit_data: Path) -> None:
    with np.load(exit_data / "test.npz") as file:
        image = file["image"][:1]
    with ipj_edge.load(tuned, threads=1) as model:
        assert model.run(image, deadline_s=0.0).exit_index == 0
        free = model.run(image)
        assert model.run(image, deadline_s=60.0).exit_index == free.exit_index


def test_other_settings_or_bytes_void_the_certificate(tuned: Path, ipj_edge_cli: Callable) -> None:
    ran = ipj_edge_cli("verify", tuned)
    assert ran.code == 0, ran
    ran = ipj_edge_cli("bench", tuned, "--threads", "2", "--window", "0.05")
    assert ran.code == 9, ran
    assert "threads = 1, here it is 2" in ran.err
    text = (tuned / "exits.json").read_text()
    (tuned / "exits.json").write_text(text.replace('"rule": "max-probability"', '"rule": "entropy"'))
    ran = ipj_edge_cli("bench", tuned, "--threads", "1", "--window", "0.05")
    assert ran.code == 9
    assert "exits.json" in ran.err


def test_too_little_data_says_how_much_is_missing_and_keeps_the_full_model(
    copy: Path, exit_data: Path, ipj_edge_cli: Callable
) -> None:
    with np.load(exit_data / "tune.npz") as file:
        np.savez(copy.parent / "few.npz", image=file["image"][:120], labels=file["labels"][:120])
    ran = ipj_edge_cli(
        "exits", "tune", copy, "--data", copy.parent / "few.npz", "--max-harm", "1pp", "--objective", "macs",
        "--threads", "1", "--window", "0.02",
    )  # fmt: skip
    assert ran.code == 5, ran
    assert "more are needed" in ran.err
    record = read_exits(copy)
    assert record is not None
    assert record.policy.never_exits
    assert record.certificate.samples_missing
    with ipj_edge.load(copy, threads=1) as model:
        assert model.policy is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--max-harm", "0pp"), "above 0pp"),
        (("--max-harm", "1"), "1pp"),
        (("--confidence", "95"), "5%"),
        (("--rule", "guess"), "unknown exit rule 'guess'"),
    ],
)
def test_options_that_cannot_be_used(
    copy: Path, exit_data: Path, ipj_edge_cli: Callable, options: tuple[str, ...], message: str
) -> None:
    ran = ipj_edge_cli("exits", "tune", copy, "--data", exit_data / "tune.npz", "--window", "0.02", *options)
    assert ran.code == 2, ran
    assert message in ran.err
    assert not (copy / "exits.json").exists()


def test_a_meter_is_asked_by_its_options_and_no_joules_are_said_or_refused(
    copy: Path, exit_data: Path, tmp_path: Path, ipj_edge_cli: Callable
) -> None:
    FakeSysfs(tmp_path / "sys").hwmon("ltc2947", {"energy1_input": 1_000_000})
    command = ("exits", "tune", copy, "--data", exit_data / "tune.npz", "--window", "0.02", "--windows", "2")
    meter = ("--probe", "hwmon", "--sysfs-root", tmp_path / "sys")
    ran = ipj_edge_cli(*command, *meter, "--require-measured")
    assert ran.code == 8, ran
    assert "did not move" in ran.err
    assert not (copy / "exits.json").exists()
    ran = ipj_edge_cli(*command, *meter)
    assert ran.code in (0, 5), ran
    assert "seconds are minimised" in ran.err
    assert "did not move" in ran.err


def test_a_model_with_one_exit_cannot_be_tuned(bundles: Path, digits: Path, ipj_edge_cli: Callable) -> None:
    ran = ipj_edge_cli("exits", "tune", bundles / "digits.tflite-cpu.fp32.ipj", "--data", digits / "test.npz")
    assert ran.code == 2
    assert "has one exit" in ran.err
