"""ONNX files that would never end to be read, or read what is not theirs: one line, exit 2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from ipj_edge.errors import SourceError
from ipj_edge_converters.onnx.inspect import InspectOnnx
from ipj_edge_converters.onnx.source.reading import read_onnx


def _model(*nodes: Any, functions: Any = (), weights: Any = ()) -> ModelProto:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        list(nodes),
        "net",
        [value("x", TensorProto.FLOAT, [1, 4])],
        [value("y", TensorProto.FLOAT, [1, 4])],
        list(weights),
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, functions=list(functions), opset_imports=imports, ir_version=8)


def _function(name: str, *calls: str) -> Any:
    names = ["a", *(f"t{index}" for index in range(len(calls) - 1)), "b"]
    nodes = [
        helper.make_node(call, [names[index]], [names[index + 1]], domain="local" if call.startswith("f") else "")
        for index, call in enumerate(calls)
    ]
    return helper.make_function("local", name, ["a"], ["b"], nodes, [helper.make_opsetid("", 17)])


def _saved(model: ModelProto, folder: Path) -> Path:
    path = folder / "net.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("functions", [[_function("f0", "f0")], [_function("f0", "f1"), _function("f1", "Relu", "f0")]])
def test_local_functions_that_call_themselves_are_named(functions: list[Any], tmp_path: Path) -> None:
    path = _saved(_model(helper.make_node("f0", ["x"], ["y"], domain="local"), functions=functions), tmp_path)
    with pytest.raises(SourceError, match="calls itself"):
        _cleaned(path)


def test_local_functions_that_double_forty_times_are_refused_at_once(tmp_path: Path) -> None:
    functions = [_function(f"f{level}", *[f"f{level + 1}"] * 2) for level in range(40)] + [_function("f40", "Relu")]
    path = _saved(_model(helper.make_node("f0", ["x"], ["y"], domain="local"), functions=functions), tmp_path)
    with pytest.raises(SourceError, match="1099511627776 nodes"):
        _cleaned(path)


def _cleaned(path: Path) -> Any:
    from ipj_edge_converters.onnx.source.cleaning import clean

    return clean(read_onnx(path)[0], "net")


def _external(folder: Path, location: str, **facts: str) -> Path:
    tensor = numpy_helper.from_array(np.ones(4, np.float32), "w")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **facts}.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    return _saved(_model(helper.make_node("Add", ["x", "w"], ["y"]), weights=[tensor]), folder)


@pytest.mark.parametrize("offset", ["-1", "-4096", "1.5", "x", "99999999999999999999999"])
def test_weights_at_an_impossible_place_are_refused(offset: str, tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(np.ones(4, np.float32).tobytes())
    with pytest.raises(SourceError, match="'w' is said to be at byte"):
        read_onnx(_external(tmp_path, "w.bin", offset=offset, length="16"))


@pytest.mark.parametrize("read", [read_onnx, InspectOnnx().inspect])
def test_a_link_out_of_the_models_folder_is_not_followed(read: Any, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(np.ones(4, np.float32).tobytes())
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "w.bin").symlink_to("../secret")
    with pytest.raises(SourceError, match="a link out of its folder"):
        read(_external(folder, "w.bin"))


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", ""])
def test_weights_outside_of_the_models_folder_are_not_inspected(location: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="only a file beside it"):
        InspectOnnx().inspect(_external(tmp_path, location))
