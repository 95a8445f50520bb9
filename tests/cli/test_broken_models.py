"""Every broken public model is refused with its exit code and one line, and nothing is published."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.data

# Exit code, and what the one line says.
REFUSALS = {
    "keyword_scrambled_8bit_CRASHES.tflite": (4, "died on this model (signal"),
    "person_detect_ethosu.tflite": (3, "ethos-u"),
    "model_invoking_error.tflite": (3, "fake-op-double"),
    "custom_domain_noisy_relu.onnx": (3, "MyNoisyReluDomain"),
}
TARGETS = ("tflite-cpu", "edgetpu", "onnxruntime-cpu", "openvino-cpu")


def test_every_broken_model_is_in_this_test(data_folder: Path):
    assert {path.name for path in (data_folder / "models/broken").iterdir()} == set(REFUSALS)


@pytest.mark.parametrize("name", REFUSALS)
def test_a_broken_model_is_refused_with_its_exit_code(data_folder, ipj_edge_cli, tmp_path, name):
    code, told = REFUSALS[name]
    wanted = [part for target in TARGETS for part in ("--target", target)]
    ran = ipj_edge_cli("convert", data_folder / "models/broken" / name, *wanted, "-o", tmp_path / "dist")
    assert ran.code == code, ran
    errors = [line for line in ran.err.splitlines() if line.startswith("ipj-edge:")]
    assert len(errors) == 1
    assert told in errors[0]
    assert "Traceback" not in ran.err
    assert not (tmp_path / "dist").exists()


@pytest.mark.parametrize("name", REFUSALS)
def test_a_broken_model_can_be_inspected_because_it_is_not_run(data_folder, ipj_edge_here, name):
    ran = ipj_edge_here("inspect", data_folder / "models/broken" / name)
    assert ran.code == 0, ran
    assert name in ran.out
