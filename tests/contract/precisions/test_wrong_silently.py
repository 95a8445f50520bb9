"""Bundles that once were published although they were wrong: whole numbers, slices, places without a number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ipj_edge.errors import DataError
from ipj_edge.runtime.verification import verify

TARGETS = ("onnxruntime-cpu", "openvino-cpu")

pytestmark = pytest.mark.slow


def _saved(path: Path, nodes, inputs, outputs, weights) -> Path:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)
    return path


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.npz"
    np.savez(path, x=np.random.default_rng(1).normal(size=(256, 16)).astype(np.float32))
    return path


def _classes(tmp_path, noise):
    """Make a model that answers a class number; all classes but a few share their weights up to noise."""
    rng = np.random.default_rng(2)
    weights = rng.normal(size=(16, 1)) + noise * rng.normal(size=(16, 40))
    return _saved(
        tmp_path / "classes.onnx",
        [helper.make_node("MatMul", ["x", "W"], ["s"]), helper.make_node("ArgMax", ["s"], ["c"], axis=1, keepdims=0)],
        {"x": (TensorProto.FLOAT, ["n", 16])},
        {"c": (TensorProto.INT64, ["n"])},
        {"W": weights.astype(np.float32)},
    )


def test_a_class_number_of_int8_that_is_mostly_wrong_is_refused(made, tmp_path, rows):
    wrong = made(_classes(tmp_path, 0.01), "onnxruntime-cpu", "int8", calibration=str(rows))
    assert wrong.exit_code == 4
    assert "at least 97% must agree" in str(wrong.error)
    assert "--keep-float" in str(wrong.error)
    right = made(tmp_path / "classes.onnx", "onnxruntime-cpu", "fp32")
    assert {figures.agreement for figures in right.manifest.parity.outputs} == {1.0}


def test_a_class_number_of_int8_that_agrees_is_published_with_its_agreement(made, tmp_path, rows):
    conversion = made(_classes(tmp_path, 10.0), "onnxruntime-cpu", "int8", calibration=str(rows))
    (figures,) = (each for each in conversion.manifest.parity.outputs if each.inputs == "calibration")
    assert figures.places == 256
    assert 0.97 <= figures.agreement <= 1.0
    # A device is asked for samples that were right here.
    assert verify(conversion.path).outputs[0].agreement == 1.0


def test_dynamic_int8_with_a_class_number_needs_data(made, tmp_path, rows):
    source = _classes(tmp_path, 10.0)
    refused = made(source, "onnxruntime-cpu", "int8", scheme="dynamic")
    assert isinstance(refused.error, DataError)
    assert "give --data with 100 samples or more" in str(refused.error)
    assert made(source, "onnxruntime-cpu", "int8", scheme="dynamic", data=str(rows)).exit_code == 0


def test_indices_of_the_largest_scores_are_not_refused_for_their_distance(made, tmp_path, rows):
    source = _saved(
        tmp_path / "top.onnx",
        [helper.make_node("MatMul", ["x", "W"], ["s"]), helper.make_node("TopK", ["s", "k"], ["v", "i"])],
        {"x": (TensorProto.FLOAT, ["n", 16])},
        {"v": (TensorProto.FLOAT, ["n", 5]), "i": (TensorProto.INT64, ["n", 5])},
        {"W": np.random.default_rng(3).normal(size=(16, 200)).astype(np.float32), "k": np.array([5])},
    )
    assert made(source, "onnxruntime-cpu", "int8", calibration=str(rows)).exit_code == 0


@pytest.mark.parametrize("keep", [(), ("Concat*",)])
def test_scores_beside_boxes_keep_their_spread_or_are_refused(made, tmp_path, rows, keep):
    source = _saved(
        tmp_path / "head.onnx",
        [
            helper.make_node("MatMul", ["x", "W"], ["boxes"]),
            helper.make_node("MatMul", ["x", "V"], ["raw"]),
            helper.make_node("Sigmoid", ["raw"], ["scores"]),
            helper.make_node("Reshape", ["boxes", "shape"], ["b"]),
            helper.make_node("Reshape", ["scores", "shape"], ["s"]),
            helper.make_node("Concat", ["b", "s"], ["y"], axis=1),
        ],
        {"x": (TensorProto.FLOAT, ["n", 16])},
        {"y": (TensorProto.FLOAT, ["n", 8, 32])},
        {
            "W": 100 * np.random.default_rng(4).normal(size=(16, 128)).astype(np.float32),
            "V": 0.3 * np.random.default_rng(5).normal(size=(16, 128)).astype(np.float32),
            "shape": np.array([-1, 4, 32]),
        },
    )
    conversion = made(source, "onnxruntime-cpu", "int8", calibration=str(rows), keep_float=keep)
    assert conversion.exit_code == (0 if keep else 4)
    if not keep:
        assert "of axis 1 is constant" in str(conversion.error)
        assert "--keep-float PATTERN, e.g. '*Concat*'" in str(conversion.error)


@pytest.mark.parametrize("target", TARGETS)
def test_masked_scores_are_infinite_in_the_bundle_too(made, tmp_path, rows, target):
    source = _saved(
        tmp_path / "masked.onnx",
        [
            helper.make_node("MatMul", ["x", "W"], ["s"]),
            helper.make_node("Reshape", ["s", "shape"], ["z"]),
            helper.make_node("Where", ["mask", "low", "z"], ["y"]),
        ],
        {"x": (TensorProto.FLOAT, ["n", 16])},
        {"y": (TensorProto.FLOAT, ["n", 7, 7])},
        {
            "W": np.random.default_rng(6).normal(size=(16, 49)).astype(np.float32),
            "shape": np.array([-1, 7, 7]),
            "mask": np.triu(np.ones((7, 7), bool), 1),
            "low": np.array(-np.inf, np.float32),
        },
    )
    conversion = made(source, target, "int8", calibration=str(rows))
    (figures,) = (each for each in conversion.manifest.parity.outputs if each.inputs == "calibration")
    assert figures.relative_l2 < 0.15
    assert verify(conversion.path).outputs[0].relative_l2 < 0.15


def test_the_accuracy_gate_takes_class_numbers(made, tmp_path, rows):
    source = _classes(tmp_path, 10.0)
    x = np.load(rows)["x"]
    scores = x @ numpy_helper.to_array(onnx.load(source).graph.initializer[0])
    labelled = tmp_path / "labelled.npz"
    np.savez(labelled, x=x, labels=scores.argmax(1))
    conversion = made(
        source, "onnxruntime-cpu", "int8", calibration=str(rows), data=str(labelled), max_accuracy_drop=0.03
    )
    assert conversion.outcome.accuracy[0] == 1.0
    assert 0.97 <= conversion.outcome.accuracy[1] <= 1.0
    np.savez(labelled, x=x, labels=(scores.argmax(1) + 1) % 40)
    shifted = made(source, "onnxruntime-cpu", "fp32", data=str(labelled), max_accuracy_drop=0.03)
    assert shifted.outcome.accuracy == (0.0, 0.0)
