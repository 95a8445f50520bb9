"""Bundles for onnxruntime-gpu, made where there is no GPU: proven by the CPU engine, and marked so."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import ipj_edge
from ipj_edge.bundles.bundle import open_bundle
from ipj_edge.errors import TargetUnavailableError
from ipj_edge.plugins import load_target
from ipj_edge.runtime.model import open_model
from ipj_edge.values import Settings
from ipj_edge_targets.onnxruntime_gpu import OnnxruntimeGpu

pytestmark = pytest.mark.skipif(OnnxruntimeGpu().availability().available, reason="a GPU is here: see tests/hardware")

IMAGE = np.linspace(0, 1, 3 * 6 * 7, dtype=np.float32).reshape(1, 3, 6, 7) ** 2


def kinds(path, side):
    graph = onnx.load(path / "model.onnx").graph
    return {value.type.tensor_type.elem_type for value in getattr(graph, side)}


def test_the_target_says_what_it_measures_and_who_stands_in():
    target = load_target("onnxruntime-gpu")
    assert target.boundaries == ("gpu", "module")
    assert (target.engine, target.proxy) == ("onnxruntime-gpu", "onnxruntime-cpu")


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_a_bundle_is_published_with_its_proxy_named(made, images, precision):
    conversion = made("conv", "onnxruntime-gpu", precision, calibration=str(images))
    manifest = conversion.manifest
    assert manifest.parity.verified_on == "proxy:onnxruntime-cpu"
    assert manifest.requires.engine == "onnxruntime-gpu"
    assert kinds(conversion.path, "input") == kinds(conversion.path, "output") == {onnx.TensorProto.FLOAT}


def test_fp16_halves_weights_and_the_gap_to_the_source_is_that_of_float16(made, images):
    half = made("conv", "onnxruntime-gpu", "fp16")
    weights = onnx.load(half.path / "model.onnx").graph.initializer
    assert {each.data_type for each in weights if len(each.dims) > 1} >= {onnx.TensorProto.FLOAT16}
    assert 1e-5 < max(each.relative_l2 for each in half.manifest.parity.outputs) < 2e-2


def test_inputs_and_outputs_are_float16_when_asked_and_callers_still_give_float32(made):
    conversion = made("conv", "onnxruntime-gpu", "fp16", half_io=True)
    assert kinds(conversion.path, "input") == kinds(conversion.path, "output") == {onnx.TensorProto.FLOAT16}
    assert conversion.manifest.inputs[0].dtype == "float32"
    with open_model(open_bundle(conversion.path), Settings(), on="onnxruntime-cpu") as model:
        assert model.run(IMAGE).outputs["output"].dtype == np.float32


def test_an_operator_can_be_kept_in_float32(made):
    conversion = made("conv", "onnxruntime-gpu", "fp16", keep_float=("Conv node_conv2d_1",))
    model = onnx.load(conversion.path / "model.onnx")
    typed = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    weights = {node.name: typed[node.input[1]] for node in model.graph.node if node.op_type == "Conv"}
    assert weights["node_conv2d_1"] == onnx.TensorProto.FLOAT
    assert weights["node_conv2d_2"] == onnx.TensorProto.FLOAT16


def test_cuda_is_the_default_and_held_to_float32(made):
    (provider,) = made("conv", "onnxruntime-gpu", "fp32").manifest.requires.providers
    assert (provider.name, provider.options) == ("CUDAExecutionProvider", {"use_tf32": "0"})


def test_int8_goes_to_tensorrt_which_alone_computes_it_in_integers(made, images):
    conversion = made("conv", "onnxruntime-gpu", "int8", calibration=str(images))
    names = [each.name for each in conversion.manifest.requires.providers]
    assert names == ["TensorrtExecutionProvider", "CUDAExecutionProvider"]
    zero_points = [
        onnx.numpy_helper.to_array(each)
        for each in onnx.load(conversion.path / "model.onnx").graph.initializer
        if each.name.endswith("zero_point")
    ]
    assert zero_points
    assert all(each.dtype == np.int8 and not each.any() for each in zero_points), "TensorRT takes symmetric scales only"


def test_int8_on_cuda_is_said_to_compute_in_float(made, images):
    conversion = made("conv", "onnxruntime-gpu", "int8", calibration=str(images), providers=("cuda",))
    assert any("floating point" in note for note in conversion.manifest.notes)


def test_providers_are_recorded_in_the_order_asked_for(made):
    conversion = made("conv", "onnxruntime-gpu", "fp16", providers=("tensorrt", "cuda"))
    first, second = conversion.manifest.requires.providers
    assert (first.name, first.options["trt_fp16_enable"]) == ("TensorrtExecutionProvider", "1")
    assert second.name == "CUDAExecutionProvider"


def test_an_unknown_provider_is_refused_with_those_there_are(made):
    conversion = made("conv", "onnxruntime-gpu", "fp32", providers=("rocm",))
    assert conversion.exit_code == 6
    assert "rocm, only cuda, tensorrt" in str(conversion.error)


def test_a_target_without_providers_takes_none(made):
    assert made("conv", "onnxruntime-cpu", "fp32", providers=("cuda",)).exit_code == 6
    assert made("conv", "openvino-cpu", "bf16", half_io=True).exit_code == 6


def test_loading_the_bundle_here_is_refused_not_run_on_the_cpu(made):
    path = made("conv", "onnxruntime-gpu", "fp32").path
    with pytest.raises(TargetUnavailableError) as caught:
        ipj_edge.load(path)
    assert caught.value.exit_code == 6
    assert "\n" not in str(caught.value)


def test_a_fall_back_that_is_allowed_is_told(made):
    path = made("conv", "onnxruntime-gpu", "fp16").path
    with ipj_edge.load(path, allow_fallback=True) as model:
        (effective,) = model.effective
    assert effective.providers == ("CPUExecutionProvider",)
    assert effective.execution_precision == "f32"
    assert "providers" in effective.read_back
