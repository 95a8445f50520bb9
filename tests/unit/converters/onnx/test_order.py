"""Nodes that a file holds in no topological order are put into one; files in order stay as they are."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from ipj_edge.errors import SourceError
from ipj_edge_converters.onnx.cut import cut_onnx
from ipj_edge_converters.onnx.runtime import plain_session
from ipj_edge_converters.onnx.source.order import in_order, ordered
from ipj_edge_converters.onnx.source.reading import read_onnx

CHAIN = """
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[N, 4] x) => (float[N, 4] near, float[N, 4] far)
    <float[4, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}>
    { a = MatMul(x, w)  near = Relu(a)  b = Neg(near)  c = MatMul(b, w)  far = Tanh(c) }
"""
BRANCHES = """
    <ir_version: 8, opset_import: ["" : 17]>
    net (bool c, float[N] x) => (float[N] y)
    {
        y = If (c) <
            then_branch = one () => (float[N] z) { s = Neg(late)  z = Abs(s) },
            else_branch = other () => (float[N] q) { q = Relu(x) }
        >
        late = Exp(x)
    }
"""
FUNCTION = """
    <ir_version: 8, opset_import: ["" : 17, "local" : 1]>
    net (float[N] x) => (float[N] y) { y = local.Act(x) }
    <opset_import: ["" : 17], domain: "local">
    Act (v) => (w) { w = Neg(u)  u = Relu(v) }
"""


def reversed_chain() -> onnx.ModelProto:
    model = onnx.parser.parse_model(CHAIN)
    nodes = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def answers(model: onnx.ModelProto, **feeds: np.ndarray) -> list[np.ndarray]:
    return plain_session(model.SerializeToString(), "model.onnx").run(None, feeds)


def test_a_model_in_order_is_returned_as_it_is():
    model = onnx.parser.parse_model(CHAIN)
    before = model.SerializeToString()
    assert ordered(model, "net.onnx") is model
    assert model.SerializeToString() == before


def test_nodes_in_reverse_are_put_in_order_and_answer_the_same():
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    model = reversed_chain()
    assert not in_order(model)
    made = ordered(model, "net.onnx")
    assert in_order(made)
    onnx.checker.check_model(made)
    whole = onnx.parser.parse_model(CHAIN)
    assert [node.op_type for node in made.graph.node] == [node.op_type for node in whole.graph.node]
    for one, other in zip(answers(made, x=x), answers(whole, x=x), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("text", [BRANCHES, FUNCTION], ids=["captured in a branch", "inside a function"])
def test_what_inner_graphs_and_functions_read_counts(text):
    model = onnx.parser.parse_model(text)
    assert not in_order(model)
    made = ordered(model, "net.onnx")
    assert in_order(made)
    onnx.checker.check_model(made)


def test_nodes_that_wait_for_each_other_are_refused_with_the_file(tmp_path):
    model = reversed_chain()
    next(node for node in model.graph.node if node.op_type == "Neg").input[0] = "c"
    onnx.save(model, tmp_path / "ring.onnx")
    with pytest.raises(SourceError, match=r"'ring\.onnx' wait for each other"):
        read_onnx(tmp_path / "ring.onnx")


def test_a_file_out_of_order_is_cut_at_its_exits(tmp_path):
    from ipj_edge.values import TensorSpec

    onnx.save(reversed_chain(), tmp_path / "reversed.onnx")
    model, _ = read_onnx(tmp_path / "reversed.onnx")
    onnx.save(model, tmp_path / "whole.onnx")
    inputs = (TensorSpec(name="x", shape=("N", 4), dtype="float32", batch_axis=0),)
    cuts = cut_onnx(tmp_path / "whole.onnx", ("near", "far"), inputs, tmp_path)
    assert [cut.exit_output for cut in cuts] == ["near", "far"]
    assert [port.name for port in cuts[1].takes] == ["near"]
