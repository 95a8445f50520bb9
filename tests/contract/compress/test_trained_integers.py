"""Quantization-aware training arrives on every engine: the integers in its file are the trained ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from ipj_edge.bundles.bundle import open_bundle
from ipj_edge.conversion import ConvertRequest, convert
from ipj_edge.plugins import needs
from ipj_edge.values import ActivationRange, ConversionOptions, TensorSpec, TrainedRanges
from ipj_edge_compress.quantize.training import grid_weights

TARGETS = ("onnxruntime-cpu", "openvino-cpu", "tflite-cpu")


@pytest.fixture(params=TARGETS)
def bundle(request: pytest.FixtureRequest, trained: Any) -> Path:
    outcome = next(one for one in trained.outcomes if one.target == request.param)
    assert outcome.error is None, outcome.error
    return Path(outcome.bundle.path)


def test_the_integer_weights_of_every_engine_are_the_trained_ones(bundle: Path, trained: Any) -> None:
    found = list(_integer_weights(bundle))
    for name, want in grid_weights(trained.quantized.module).items():
        same = [one for one in found if one.size == want.numel() and np.array_equal(one.ravel(), want.numpy().ravel())]
        assert same, f"{name} {tuple(want.shape)} is not in {bundle.name}: {[one.shape for one in found]}"


def test_the_activation_scales_of_every_engine_are_the_trained_ones(bundle: Path, trained: Any) -> None:
    found = np.array(sorted(_activation_scales(bundle)))
    # NNCF does not round a model's outputs.
    rounded = [one for one in trained.quantized.ranges if one.name != "linear" or "openvino" not in bundle.name]
    assert len(rounded) >= 5
    for one in rounded:
        scale = (one.high - one.low) / 255
        assert np.isclose(found, scale, rtol=1e-5).any(), f"{one.name}: {scale} is not among {found}"


def test_no_range_of_a_network_that_engines_follow_is_a_stray(bundle: Path) -> None:
    assert not any("trained activation ranges" in note for note in open_bundle(bundle).manifest.notes)


@pytest.mark.parametrize("target", TARGETS)
def test_a_range_that_matches_no_tensor_is_noted(tmp_path: Path, trained: Any, target: str) -> None:
    known = trained.request.options.ranges
    stray = ActivationRange(name="elsewhere", low=-1.0, high=1.0, seen_low=-123.0, seen_high=456.0)
    ranges = msgspec.structs.replace(known, activations=(*known.activations, stray))
    request = msgspec.structs.replace(
        trained.request, options=ConversionOptions(ranges=ranges), targets=(target,), into=tmp_path
    )
    (outcome,) = convert(request)
    assert outcome.bundle is not None, outcome.error
    said = f"1 of {len(ranges.activations)} trained activation ranges match no tensor"
    assert any(said in note and "elsewhere" in note for note in outcome.bundle.manifest.notes)


def test_every_engine_is_as_accurate_as_the_trained_network(trained: Any) -> None:
    for outcome in trained.outcomes:
        source, made = outcome.accuracy
        assert made >= source - 0.01, outcome.target


def test_other_calibration_samples_are_refused(tmp_path: Path, trained: Any) -> None:
    np.savez(tmp_path / "other.npz", image=np.random.default_rng(0).random((20, 1, 8, 8), dtype=np.float32))
    ranges = TrainedRanges(calibration_sha256="0" * 64, activations=trained.quantized.ranges)
    request = ConvertRequest(
        source="ipj_edge_test_trained_network:build",
        targets=("onnxruntime-cpu",),
        precisions=("int8",),
        into=tmp_path / "dist",
        inputs=(TensorSpec(name="image", shape=(1, 1, 8, 8), dtype="float32"),),
        calibration=str(tmp_path / "other.npz"),
        options=ConversionOptions(ranges=ranges),
    )
    (outcome,) = convert(request)
    assert outcome.error is not None
    assert "calibration samples of its training" in str(outcome.error)
    assert outcome.error.exit_code == 2


def test_ranges_survive_json(trained: Any) -> None:
    ranges = TrainedRanges(calibration_sha256="0" * 64, activations=trained.quantized.ranges)
    assert msgspec.json.decode(msgspec.json.encode(ranges), type=TrainedRanges) == ranges


def _integer_weights(bundle: Path) -> Iterator[np.ndarray]:
    """Yield int8 weights in torch's layout: outputs, inputs, height, width."""
    if (bundle / "model.onnx").exists():
        yield from _onnx_weights(bundle / "model.onnx")
    elif (bundle / "model.xml").exists():
        yield from _openvino_weights(bundle / "model.xml")
    else:
        for name, details, array in _tflite_tensors(bundle):
            if array is not None and details["dtype"] == np.int8 and array.ndim > 1:
                yield _from_tflite(name, array, details)


def _onnx_weights(path: Path) -> Iterator[np.ndarray]:
    import onnx

    for tensor in onnx.load(path).graph.initializer:
        if tensor.data_type == onnx.TensorProto.INT8:
            yield onnx.numpy_helper.to_array(tensor)


def _openvino_weights(path: Path) -> Iterator[np.ndarray]:
    with needs("openvino-cpu"):
        import openvino
    for operator in openvino.Core().read_model(path).get_ops():
        if operator.get_type_name() == "Constant" and operator.get_element_type() == openvino.Type.i8:
            yield np.array(operator.data)


def _from_tflite(_name: str, array: np.ndarray, details: dict[str, Any]) -> np.ndarray:
    if array.ndim == 2:
        return array
    depthwise = details["quantization_parameters"]["quantized_dimension"] == 3
    return array.transpose(3, 0, 1, 2) if depthwise else array.transpose(0, 3, 1, 2)


def _tflite_tensors(bundle: Path) -> Iterator[tuple[str, dict[str, Any], np.ndarray | None]]:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    engine = Interpreter(
        str(bundle / "model.tflite"), experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    )
    engine.allocate_tensors()
    for details in engine.get_tensor_details():
        try:
            yield details["name"], details, engine.get_tensor(details["index"])
        except ValueError:  # a tensor that is not there before the first run
            yield details["name"], details, None


def _activation_scales(bundle: Path) -> Iterator[float]:
    if (bundle / "model.onnx").exists():
        import onnx

        graph = onnx.load(bundle / "model.onnx").graph
        values = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
        yield from (float(values[node.input[1]]) for node in graph.node if node.op_type == "QuantizeLinear")
    elif (bundle / "model.xml").exists():
        with needs("openvino-cpu"):
            import openvino
        for operator in openvino.Core().read_model(bundle / "model.xml").get_ops():
            if operator.get_type_name() == "FakeQuantize":
                low, high = (operator.input_value(port).get_node().data.item() for port in (1, 2))
                yield (high - low) / 255
    else:
        for _, details, _ in _tflite_tensors(bundle):
            scales = details["quantization_parameters"]["scales"]
            if len(scales) == 1:
                yield float(scales[0])
