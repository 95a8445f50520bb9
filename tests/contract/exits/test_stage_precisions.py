"""Stages of different precision in one bundle, on the real engines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import ipj_edge
from ipj_edge.bundles.bundle import open_bundle

HERE = Path(__file__).parent
TARGETS = ("openvino-cpu", "onnxruntime-cpu", "tflite-cpu")


@pytest.fixture
def convert(exit_bundles: Path, exit_data: Path, ipj_edge_cli: Callable, tmp_path: Path) -> Callable:
    def run(*options: object):  # type: ignore[no-untyped-def]
        assert exit_bundles.is_dir()  # made with the weights that are converted here
        return ipj_edge_cli(
            "convert", f"{HERE / 'staged_digits.py'}:build", "--weights", exit_data / "weights.safetensors",
            "--input", "image:1x1x8x8", "--calibration", exit_data / "train.npz", "--name", "mixed",
            "--precision", "int8", "-o", tmp_path, *options,
        )  # fmt: skip

    return run


def test_a_stage_stays_float_where_it_is_told_to(convert: Callable, tmp_path: Path) -> None:
    targets = [part for target in TARGETS for part in ("--target", target)]
    ran = convert("--stage-precision", "fp32,int8,int8", *targets)
    assert ran.code == 0, ran
    for target in TARGETS:
        bundle = tmp_path / f"mixed.{target}.int8.ipj"
        manifest = open_bundle(bundle).manifest
        assert [stage.precision for stage in manifest.stages] == ["fp32", "int8", "int8"], target
        first, second, third = (stage.operators for stage in manifest.stages)
        # At most one operator less: the one whose result is quantized for the next stage.
        assert len(first.float_operators) >= first.total - 1 > 0, target
        assert len(second.float_operators) < second.total, target
        assert third.float_operators == (), target
        assert manifest.parity.chain_max_abs == 0.0
        assert ipj_edge.verify(bundle).outputs


def test_auto_measures_every_stage_and_says_what_it_chose(convert: Callable, tmp_path: Path) -> None:
    ran = convert("--stage-precision", "auto", "--target", "onnxruntime-cpu", "--json", tmp_path / "outcome.json")
    assert ran.code == 0, ran
    assert "measuring every stage at fp32" in ran.err
    assert json.loads((tmp_path / "outcome.json").read_text())[0]["error"] is None
    stages = open_bundle(tmp_path / "mixed.onnxruntime-cpu.int8.ipj").manifest.stages
    assert {stage.precision for stage in stages} <= {"fp32", "int8"}
    for stage in stages:
        in_float = len(stage.operators.float_operators)
        least, most = (stage.operators.total - 1, stage.operators.total) if stage.precision == "fp32" else (0, 2)
        assert least <= in_float <= most


@pytest.mark.parametrize(
    ("given", "message"),
    [("int8,int8", "give one a stage"), ("int8,int4,int8", "expected fp32 or int8"), ("fp32,int8", "give one a stage")],
)
def test_precisions_that_do_not_fit_are_refused(convert: Callable, tmp_path: Path, given: str, message: str) -> None:
    ran = convert("--stage-precision", given, "--target", "onnxruntime-cpu")
    assert ran.code == 2, ran
    assert message in ran.err
    assert not list(tmp_path.glob("*.ipj"))


def test_a_model_with_one_exit_has_no_stages_to_choose_for(
    digits_arguments: list[str], ipj_edge_cli: Callable, tmp_path: Path
) -> None:
    options = ("--precision", "int8", "--stage-precision", "auto", "--target", "onnxruntime-cpu", "-o", tmp_path)
    ran = ipj_edge_cli("convert", *digits_arguments, *options)
    assert ran.code == 2
    assert "several exits" in ran.err
