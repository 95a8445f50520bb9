"""Dynamic int8: no calibration, products in integers, everything proven and read back."""

from __future__ import annotations

import numpy as np
import pytest

import ipj_edge
from ipj_edge.errors import ConfigError, TargetUnavailableError, UnsupportedError
from ipj_edge.values import TensorSpec

pytestmark = [
    # torch 2.13's export of recurrent layers speaks to their authors.
    pytest.mark.filterwarnings("ignore:The tensor attributes .*_flat_weights:UserWarning"),
]


@pytest.mark.parametrize("target", ["onnxruntime-cpu", "tflite-cpu"])
def test_an_encoder_is_quantized_dynamically_without_calibration(made, target):
    conversion = made("encoder", target, scheme="dynamic")
    manifest = conversion.manifest
    assert (manifest.precision, manifest.scheme, manifest.calibration) == ("int8", "dynamic", None)
    operators = manifest.stages[0].operators
    assert 0 < len(operators.float_operators) < operators.total
    with ipj_edge.load(conversion.path) as model:
        assert "int8" in model.effective[0].execution_precision
        ids = np.arange(12, dtype=np.int64)[None] * 37
        assert model.run(ids).outputs["output"].shape == (1, 5)


def test_an_lstm_computes_in_integers_on_onnxruntime(made):
    conversion = made("lstm", "onnxruntime-cpu", "int8", scheme="dynamic")
    assert conversion.floats == ()
    assert conversion.manifest.requires.isa == "vnni"


def test_a_gru_has_no_dynamic_form_on_onnxruntime_and_the_counts_say_so(made):
    (name,) = made("gru", "onnxruntime-cpu", "int8", scheme="dynamic").floats
    assert name.startswith("GRU")


def test_an_lstm_is_quantized_dynamically_on_tflite(made):
    conversion = made("lstm", "tflite-cpu", "int8", scheme="dynamic")
    assert not any(name.startswith("FULLY_CONNECTED") for name in conversion.floats)


def test_every_set_is_judged_by_size_since_there_is_no_calibrated_range(made):
    conversion = made("encoder", "onnxruntime-cpu", scheme="dynamic", tolerance=1e-6)
    assert conversion.exit_code == 4
    assert "random inputs: relative L2" in str(conversion.error)


def test_convolutions_alone_gain_nothing_and_are_refused(made, tmp_path):
    (tmp_path / "only.py").write_text("from torch import nn\ndef build():\n    return nn.Conv2d(3, 4, 3)\n")

    inputs = (TensorSpec(name="x", shape=(1, 3, 6, 7), dtype="float32"),)
    conversion = made(f"{tmp_path / 'only.py'}:build", "onnxruntime-cpu", scheme="dynamic", inputs=inputs)
    assert isinstance(conversion.error, UnsupportedError)
    assert "--quantize static" in str(conversion.error)


def test_openvino_has_no_dynamic_int8(made):
    conversion = made("encoder", "openvino-cpu", scheme="dynamic")
    assert isinstance(conversion.error, TargetUnavailableError)
    assert conversion.exit_code == 6
    assert "dynamic" in str(conversion.error)


def test_calibration_data_without_effect_is_refused(made, images):
    with pytest.raises(ConfigError, match="--calibration has no effect"):
        made("conv", "onnxruntime-cpu", scheme="dynamic", calibration=str(images))


@pytest.mark.data
@pytest.mark.parametrize("option", [{"scheme": "dynamic"}, {"keep_float": ("Conv*",)}])
def test_a_quantized_source_takes_no_wishes(made, data_folder, option):
    source = data_folder / "models/cifar10_resnet20/resnet20_cifar10_int8_qdq.onnx"
    conversion = made(source, "onnxruntime-cpu", "int8", **option)
    assert isinstance(conversion.error, ConfigError)
    assert "quantized already" in str(conversion.error)


def test_the_command_line_takes_the_scheme_for_int8(ipj_edge_cli, tmp_path):
    networks = str(__file__).replace("test_dynamic_int8.py", "networks.py")
    ran = ipj_edge_cli(
        "convert", f"{networks}:encoder", "--input", "ids:1x12:int64:0..499", "--quantize", "dynamic",
        "--target", "onnxruntime-cpu", "-o", tmp_path,
    )  # fmt: skip
    assert ran.code == 0, ran
    assert (tmp_path / "networks.onnxruntime-cpu.int8.ipj").is_dir()
