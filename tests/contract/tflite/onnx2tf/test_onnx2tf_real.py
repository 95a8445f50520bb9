"""The real onnx2tf, where it is on PATH (tools/install-onnx2tf), on public models."""

from __future__ import annotations

import gzip
import shutil

import numpy as np
import pytest

import ipj_edge
from ipj_edge.conversion import ConvertRequest, convert
from ipj_edge.conversion.plan.request import take_options
from ipj_edge.values import TensorSpec

pytestmark = [
    pytest.mark.slow,
    pytest.mark.data,
    pytest.mark.skipif(shutil.which("onnx2tf") is None, reason="onnx2tf is not on PATH: run tools/install-onnx2tf"),
]


@pytest.fixture
def made(tmp_path, data_folder):
    def run(file, precision="fp32", **options):
        (outcome,) = convert(
            ConvertRequest(
                source=str(data_folder / "models" / file), targets=("tflite-cpu",), into=tmp_path / "dist",
                precisions=(precision,), options=take_options(options), **options,
            )
        )  # fmt: skip
        assert outcome.bundle is not None, outcome.error
        return outcome.bundle

    return run


@pytest.fixture(scope="module")
def digits(data_folder):
    """1,000 MNIST test digits, raw 0..255, and their labels."""
    with gzip.open(data_folder / "mnist/t10k-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(data_folder / "mnist/t10k-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    return images[:1000].astype(np.float32), labels[:1000]


def test_detector_maps_of_equal_sides_keep_their_axes(made):
    bundle = made("onnx/FastestDet.onnx")
    (stage,) = bundle.manifest.stages
    assert stage.adds[0].shape == (1, 85, 22, 22)
    assert max(each.relative_l2 for each in bundle.manifest.parity.outputs) < 1e-4


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_an_old_model_keeps_its_accuracy_in_every_precision(made, digits, tmp_path, precision):
    images, labels = digits
    options = {}
    if precision == "int8":
        np.savez(tmp_path / "cal.npz", x=images[:200])
        options["calibration"] = str(tmp_path / "cal.npz")
    bundle = made("onnx/mnist_cntk_opset8.onnx", precision, **options)
    with ipj_edge.load(bundle.path) as model:
        found = np.concatenate([model.run(image[None]).outputs["Plus214_Output_0"] for image in images])
    assert (found.argmax(1) == labels).mean() == pytest.approx(0.9891, abs=0.006)


def test_a_state_as_input_and_output_runs_on_tflite(made):
    bundle = made("onnx/silero_vad_openvino_16k.onnx")
    assert {spec.name for spec in bundle.manifest.outputs} == {"output", "stateN"}


def test_open_sizes_that_the_user_fixes_are_fixed(made):
    inputs = (TensorSpec(name="x", shape=(1, 3, 48, 192), dtype="float32"),)
    bundle = made("onnx/ch_ppocr_mobile_v2.0_cls_mobile.onnx", inputs=inputs)
    assert bundle.manifest.batch.static == 1


def test_two_conversions_give_the_same_bytes(made, tmp_path):
    one = made("onnx/mnist_cntk_opset8.onnx", name="one")
    other = made("onnx/mnist_cntk_opset8.onnx", name="other")
    assert (one.path / "model.tflite").read_bytes() == (other.path / "model.tflite").read_bytes()
