"""A count that fails says why; it ends no conversion."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from onnx import TensorProto, helper

from ipj_edge.values import TensorSpec
from ipj_edge_converters.onnx.macs import count_onnx
from ipj_edge_converters.tflite.counting import count_tflite


def test_an_operator_without_its_inputs_is_not_counted_in_onnx() -> None:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 4)) for name in "xy"]
    graph = helper.make_graph([helper.make_node("MatMul", ["x"], ["y"])], "net", ends[:1], ends[1:])
    counted = count_onnx(helper.make_model(graph), (TensorSpec(name="x", shape=(1, 4), dtype="float32"),))
    assert counted.macs is None
    assert counted.reason


def test_a_counter_that_raises_is_a_reason_in_tflite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ipj_edge_converters.tflite.counting.count_weights", lambda _model: {"float32": 3})
    counted = count_tflite(SimpleNamespace(subgraphs=[]), 1)
    assert (counted.macs, counted.parameters) == (None, 3)
    assert counted.reason == "counting failed: IndexError: list index out of range"
