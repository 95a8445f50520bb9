"""Outputs whose shapes hang on the values in an input, scalars, and models that take nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ipj_edge
from ipj_edge.errors import SourceError

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
Values = dict[str, np.ndarray]


def _save(
    folder: Path,
    operator: str,
    inputs: dict[str, list[int | str]],
    outputs: list[str],
    constants: Values | None = None,
    **attributes: object,
) -> Path:
    constants = constants or {}
    node = helper.make_node(operator, [*inputs, *constants], outputs, **attributes)
    graph = helper.make_graph(
        [node],
        "net",
        [helper.make_tensor_value_info(name, FLOAT if name == "x" else INT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, INT if name == "i" else FLOAT, None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "net.onnx")
    return folder / "net.onnx"


X = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)
CASES = {
    "TopK": ({"x": ["n", 8], "k": [1]}, ["y", "i"], {"k": np.array([3])}, [(6, 3), (6, 3)]),
    "Reshape": ({"x": [6, 8], "shape": [2]}, ["y"], {"shape": np.array([12, 4])}, [(12, 4)]),
    "Slice": (
        {"x": [6, 8], "starts": [2], "ends": [2]},
        ["y"],
        {"starts": np.array([1, 2]), "ends": np.array([4, 8])},
        [(3, 6)],
    ),
    "Expand": ({"x": [6, 8], "shape": [3]}, ["y"], {"shape": np.array([2, 6, 8])}, [(2, 6, 8)]),
    "Tile": ({"x": [6, 8], "repeats": [2]}, ["y"], {"repeats": np.array([1, 2])}, [(6, 16)]),
}


@pytest.mark.parametrize("operator", CASES)
def test_a_shape_that_an_input_says_is_taken_from_the_data_and_left_open(tmp_path, bundle_of, operator) -> None:
    inputs, outputs, settings, shapes = CASES[operator]
    feeds = {"x": X, **settings}
    np.savez(tmp_path / "data.npz", **feeds)
    bundle = bundle_of(_save(tmp_path, operator, inputs, outputs), data=str(tmp_path / "data.npz"))
    specs = {spec.name: spec for spec in bundle.manifest.inputs}
    assert all(specs[name].batch_axis is None for name in settings)
    assert any(isinstance(size, str) for size in bundle.manifest.outputs[0].shape)
    ipj_edge.verify(bundle.path)
    with ipj_edge.load(bundle.path) as model:
        assert [value.shape for value in model.run(feeds).outputs.values()] == shapes


def test_another_count_than_in_the_data_runs_when_the_range_allows_it(tmp_path, bundle_of) -> None:
    np.savez(tmp_path / "data.npz", x=X, k=np.array([3]))
    source = _save(tmp_path, "TopK", {"x": ["n", 8], "k": [1]}, ["y", "i"])
    bundle = bundle_of(source, "k:1:int64:1..8", data=str(tmp_path / "data.npz"))
    with ipj_edge.load(bundle.path) as model:
        for k in (3, 1, 8, 3):
            assert model.run({"x": X, "k": np.array([k])}).outputs["y"].shape == (6, k)


def test_a_range_of_scalars_is_as_long_as_they_say(tmp_path, bundle_of) -> None:
    source = _save(tmp_path, "Range", {"start": [], "stop": [], "step": []}, ["i"])
    feeds = {"start": np.array(0), "stop": np.array(7), "step": np.array(2)}
    np.savez(tmp_path / "data.npz", **feeds)
    with ipj_edge.load(bundle_of(source, data=str(tmp_path / "data.npz")).path) as model:
        assert model.run(feeds).outputs["i"].tolist() == [0, 2, 4, 6]


def test_an_output_with_no_elements_is_no_nan(tmp_path, bundle_of) -> None:
    bounds = {"starts": np.array([2]), "ends": np.array([2])}
    bundle = bundle_of(_save(tmp_path, "Slice", {"x": [6, 8]}, ["y"], bounds))
    with ipj_edge.load(bundle.path) as model:
        assert model.run(X).outputs["y"].shape == (0, 8)


@pytest.mark.parametrize("target", ["onnxruntime-cpu", "openvino-cpu"])
def test_a_scalar_without_a_batch_axis_is_an_input_like_others(tmp_path, bundle_of, target) -> None:
    bundle = bundle_of(_save(tmp_path, "Mul", {"x": []}, ["y"], {"three": np.float32(3)}), target=target)
    with ipj_edge.load(bundle.path) as model:
        assert model.run(np.float32(2)).outputs["y"].item() == 6
        assert model.run(2.0).outputs["y"].shape == ()


def test_places_of_a_torch_module_are_as_many_as_the_values_say(torch_net, bundle_of) -> None:
    bundle = bundle_of(torch_net("def forward(self, x):\n    return torch.nonzero(x > 0)"), "x:3x4")
    assert bundle.manifest.outputs[0].shape == ("output_dim0", 2)
    with ipj_edge.load(bundle.path) as model:
        for count in (1, 12, 5):
            x = -np.ones((3, 4), np.float32)
            x.flat[:count] = 1
            assert model.run(x).outputs["output"].shape == (count, 2)


def test_a_model_without_inputs_is_refused_in_one_line(tmp_path, torch_net, bundle_of) -> None:
    constant = _save(tmp_path, "Constant", {}, ["y"], value=numpy_helper.from_array(np.float32([1, 2]), "v"))
    for source in (constant, torch_net("def forward(self):\n    return torch.ones(3)")):
        with pytest.raises(SourceError, match="has no inputs: it answers the same every time"):
            bundle_of(source)
