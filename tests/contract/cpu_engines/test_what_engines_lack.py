"""What one engine lacks: another reference, float32 for integers, names it drops, kernels it does not have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

import ipj_edge
from ipj_edge.conversion import ConvertRequest, convert
from ipj_edge.conversion.prove.trial import _raised
from ipj_edge.errors import ConversionError, ParityError, UnsupportedError
from ipj_edge.values import TensorSpec
from ipj_edge_converters.torch.to_onnx import write_onnx

FLOAT, UINT8, INT32, INT64 = TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT32, TensorProto.INT64
X = helper.make_tensor_value_info("x", FLOAT, ("n", 4))


def saved(folder: Path, nodes: list[Any], takes: list[Any], makes: list[Any], opset: int = 18) -> Path:
    model = helper.make_model(
        helper.make_graph(nodes, "net", takes, makes), opset_imports=[helper.make_opsetid("", opset)], ir_version=10
    )
    path = folder / "net.onnx"
    onnx.save(model, path)
    return path


def outcome_of(source: Path, target: str, feeds: dict[str, Any]) -> Any:
    data = source.parent / "data.npz"
    np.savez(data, **feeds)
    (outcome,) = convert(
        ConvertRequest(source=str(source), targets=(target,), into=source.parent / target, data=str(data))
    )
    return outcome


@pytest.mark.parametrize("operator", ["Identity", "Dropout"])
def test_an_output_that_is_the_input_keeps_its_name(tmp_path: Path, operator: str) -> None:
    nodes = [helper.make_node(operator, ["x"], ["y"]), helper.make_node("Relu", ["x"], ["z"])]
    makes = [helper.make_tensor_value_info(name, FLOAT, ("n", 4)) for name in "yz"]
    x = np.arange(-4, 4, dtype=np.float32).reshape(2, 4)
    outcome = outcome_of(saved(tmp_path, nodes, [X], makes), "openvino-cpu", {"x": x})
    assert outcome.error is None
    with ipj_edge.load(outcome.bundle.path) as model:
        outputs = model.run({"x": x}).outputs
    np.testing.assert_array_equal(outputs["y"], x)
    np.testing.assert_array_equal(outputs["z"], np.maximum(x, 0))


def test_integer_products_run_in_float32_where_openvino_has_no_integer_kernel(tmp_path: Path) -> None:
    takes = [helper.make_tensor_value_info(name, UINT8, shape) for name, shape in (("a", (1, 3)), ("b", (3, 2)))]
    nodes = [helper.make_node("MatMulInteger", ["a", "b"], ["y"])]
    source = saved(tmp_path, nodes, takes, [helper.make_tensor_value_info("y", INT32, (1, 2))])
    feeds = {"a": np.array([[1, 2, 255]], np.uint8), "b": np.array([[1, 4], [2, 5], [3, 255]], np.uint8)}
    outcome = outcome_of(source, "openvino-cpu", feeds)
    assert outcome.error is None
    assert any("computes them in float32" in note for note in outcome.bundle.manifest.notes)
    with ipj_edge.load(outcome.bundle.path) as model:
        assert model.effective[0].execution_precision == "f32"
        np.testing.assert_array_equal(model.run(feeds).outputs["y"], [[770, 65039]])


def roi_align(folder: Path) -> tuple[Path, dict[str, Any]]:
    takes = [
        helper.make_tensor_value_info("x", FLOAT, (1, 1, 8, 8)),
        helper.make_tensor_value_info("rois", FLOAT, (2, 4)),
        helper.make_tensor_value_info("batch_indices", INT64, (2,)),
    ]
    sizes = {"output_height": 2, "output_width": 2, "sampling_ratio": 2}
    node = helper.make_node("RoiAlign", ["x", "rois", "batch_indices"], ["y"], **sizes)
    source = saved(folder, [node], takes, [helper.make_tensor_value_info("y", FLOAT, (2, 1, 2, 2))], opset=22)
    x = np.random.default_rng(0).normal(size=(1, 1, 8, 8)).astype(np.float32)
    rois = np.array([[0, 0, 4, 4], [1, 2, 6, 7]], np.float32)
    return source, {"x": x, "rois": rois, "batch_indices": np.zeros(2, np.int64)}


def test_onnx_s_own_evaluator_is_the_reference_of_what_onnxruntime_lacks(tmp_path: Path) -> None:
    source, feeds = roi_align(tmp_path)
    outcome = outcome_of(source, "openvino-cpu", feeds)
    assert outcome.error is None
    (note,) = [each for each in outcome.bundle.manifest.notes if "evaluator" in each]
    assert "onnxruntime has no operator RoiAlign(22)" in note


def test_the_target_that_lacks_the_operator_still_says_so(tmp_path: Path) -> None:
    source, feeds = roi_align(tmp_path)
    outcome = outcome_of(source, "onnxruntime-cpu", feeds)
    assert isinstance(outcome.error, UnsupportedError)
    assert "RoiAlign(22)" in str(outcome.error)


def test_what_torch_s_exporter_trips_over_is_unsupported(tmp_path: Path) -> None:
    class Attention(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    exported = torch.export.export(Attention().eval(), (torch.zeros(2, 5, 8),))
    spec = TensorSpec(name="x", shape=(2, 5, 8), dtype="float32")
    with pytest.raises(UnsupportedError, match="only 4D query, key, and value are supported") as caught:
        write_onnx(exported, (spec,), (TensorSpec(name="y", shape=(2, 5, 8), dtype="float32"),), tmp_path / "a.onnx")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("MissingKernelError", UnsupportedError),
        ("UnsupportedError", UnsupportedError),
        ("BundleError", ConversionError),
        ("ParityError", ConversionError),
        ("NoSuchError", ConversionError),
    ],
)
def test_an_error_of_the_trial_keeps_its_meaning(kind: str, expected: type[ConversionError]) -> None:
    error = _raised({"kind": kind, "message": "no kernel for 'Wobble'"})
    assert type(error) is expected
    assert not isinstance(error, ParityError)
    assert str(error) == "no kernel for 'Wobble'"
