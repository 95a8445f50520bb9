"""A source that never ends, takes all memory or kills its engine is refused in one line, and nothing is left of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.contract.tflite.conftest import Builder

from ipj_edge import child
from ipj_edge.errors import EngineCrashError, SourceError
from ipj_edge.protocols import SourceRequest
from ipj_edge_converters.onnx.source.opener import OnnxOpener
from ipj_edge_converters.sources import apart
from ipj_edge_converters.tflite.source.opener import TfliteOpener


def opened(location: Path, opener=OnnxOpener):
    return opener().open(SourceRequest(location=str(location), workdir=location.parent))


def saved(folder: Path, nodes, constants) -> Path:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in "xy")
    graph = helper.make_graph(nodes, "net", [x], [y], constants)
    path = folder / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def looping(folder: Path, trips: int) -> Path:
    def value(name, kind, shape):
        return helper.make_tensor_value_info(name, kind, shape)

    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["sum", "one"], ["more"])],
        "body",
        [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("sum", TensorProto.FLOAT, None)],
        [value("on", TensorProto.BOOL, []), value("more", TensorProto.FLOAT, None)],
    )
    constants = [
        helper.make_tensor("trips", TensorProto.INT64, [], [trips]),
        helper.make_tensor("true", TensorProto.BOOL, [], [True]),
        helper.make_tensor("one", TensorProto.FLOAT, [], [1.0]),
    ]
    return saved(folder, [helper.make_node("Loop", ["trips", "true", "x"], ["y"], body=body)], constants)


def test_an_endless_loop_in_an_onnx_file_is_refused_and_its_process_is_gone(tmp_path, monkeypatch):
    monkeypatch.setattr(apart, "ANSWER_S", 2.0)
    before = set(psutil.Process().children(recursive=True))
    with pytest.raises(SourceError, match=r"'net.onnx' does not end in onnxruntime: it .* endless loop") as raised:
        opened(looping(tmp_path, 2**62))
    assert raised.value.exit_code == 2
    del raised
    assert set(psutil.Process().children(recursive=True)) <= before


def test_a_loop_that_ends_is_run(tmp_path):
    source = opened(looping(tmp_path, 7))
    zeros = np.zeros((3, 4), np.float32)
    np.testing.assert_array_equal(source.run({"x": zeros})["y"], zeros + 7)


def test_an_endless_loop_in_a_tflite_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(apart, "ANSWER_S", 2.0)
    made = Builder()
    x, y = made.tensor("x", (1, 4)), made.tensor("y", (1, 4))
    made.operator("WHILE", (x,), (y,), options=("WhileOptions", {"condSubgraphIndex": 1, "bodySubgraphIndex": 2}))
    made.ends((x,), (y,))
    made.graph()
    into = made.tensor("cond_in", (1, 4))
    true = made.tensor("true", (1,), "BOOL", data=np.array([True]))
    made.ends((into,), (true,))
    made.graph()
    into, out = made.tensor("body_in", (1, 4)), made.tensor("body_out", (1, 4))
    made.operator("FLOOR", (into,), (out,))
    made.ends((into,), (out,))
    path = tmp_path / "net.tflite"
    path.write_bytes(made.bytes())
    with pytest.raises(SourceError, match=r"'net.tflite' does not end in ai-edge-litert"):
        opened(path, TfliteOpener)


def test_a_source_that_takes_more_memory_than_a_child_may_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(child, "limits", lambda seconds: child.ChildLimits(memory_bytes=2**30, cpu_s=100))
    size = numpy_helper.from_array(np.array([2**30, 4]), "size")
    nodes = [
        helper.make_node("ConstantOfShape", ["size"], ["zeros"]),
        helper.make_node("ReduceSum", ["zeros"], ["sum"]),
        helper.make_node("Add", ["x", "sum"], ["y"]),
    ]
    with pytest.raises((SourceError, EngineCrashError), match=r"(?i)memory|alloc"):
        opened(saved(tmp_path, nodes, [size])).run({"x": np.zeros((1, 4), np.float32)})


def test_a_model_that_was_opened_before_another_is_never_mistaken_for_it(tmp_path):
    from ipj_edge_converters.onnx.source.reference import OnnxEngine, OnnxReference

    engine = OnnxEngine(tmp_path, "net.onnx")
    first = OnnxReference(onnx.load(looping(tmp_path, 1)), engine)
    OnnxReference(onnx.load(looping(tmp_path, 2)), engine)
    with pytest.raises(RuntimeError, match="another model"):
        first.run([np.zeros((1, 4), np.float32)])
