"""Multiply-accumulates and weights, on both routes, against figures worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from ipj_edge.values import TensorSpec
from ipj_edge_converters.onnx.macs import count_onnx
from ipj_edge_converters.onnx.source.opener import OnnxOpener
from ipj_edge_converters.torch.macs import count_torch
from ipj_edge_converters.torch.opener import TorchOpener


@pytest.fixture
def both(write, request_for):
    """Count a network on the torch and on the ONNX route."""

    def count(text, *inputs):
        path = write("import torch\nfrom torch import nn\n" + text)
        source = TorchOpener().open(request_for(f"{path}:build", *inputs))
        return source.count(), OnnxOpener().open(request_for(source.onnx_path())).count()

    return count


NETS = {
    # text, input shape, multiply-accumulates, weights
    "linear": ("def build(): return nn.Linear(16, 5)\n", (1, 16), 16 * 5, 16 * 5 + 5),
    "conv": (
        "def build(): return nn.Conv2d(3, 8, 3, stride=2, bias=False)\n",
        (1, 3, 9, 7),
        8 * 4 * 3 * 27,
        8 * 27,
    ),
    "grouped": ("def build(): return nn.Conv1d(6, 6, 5, groups=6)\n", (1, 6, 20), 6 * 16 * 5, 6 * 5 + 6),
    "transposed": (
        "def build(): return nn.ConvTranspose2d(3, 5, 3, stride=2, bias=False)\n",
        (1, 3, 5, 6),
        3 * 5 * 6 * 5 * 9,
        3 * 5 * 9,
    ),
    "batched matmul": (
        "class Net(nn.Module):\n    def forward(self, x): return x @ x.transpose(1, 2)\nbuild = Net\n",
        (1, 6, 8),
        6 * 8 * 6,
        0,
    ),
    "dense on steps": ("def build(): return nn.Linear(8, 4, bias=False)\n", (1, 10, 8), 10 * 8 * 4, 8 * 4),
}


@pytest.mark.parametrize("name", NETS)
def test_both_routes_count_what_the_hand_counts(both, name):
    text, shape, macs, weights = NETS[name]
    for count in both(text, ("x", shape)):
        assert (count.macs, count.parameters) == (macs, weights)


def torch_count(module, *tensors, samples=1):
    return count_torch(module.eval(), tensors, samples=samples)


@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
def test_recurrent_layers_of_torch_are_counted_through_their_fused_kernels(kind, gates):
    count = torch_count(kind(16, 32, batch_first=True), torch.zeros(1, 10, 16))
    assert count.macs == 10 * gates * 32 * (16 + 32)


def test_attention_of_torch_is_counted_through_its_fused_kernels():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, x):
            return self.attention(x, x, x, need_weights=False)[0]

    count = torch_count(Attention(), torch.zeros(1, 10, 16))
    assert count.macs == 4 * 10 * 16 * 16 + 2 * 10 * 10 * 16


def test_vectors_of_torch_are_counted():
    class Vectors(nn.Module):
        def forward(self, matrix, vector):
            return matrix @ vector, vector @ vector, torch.addmv(matrix[:, 0], matrix, vector)

    count = torch_count(Vectors(), torch.zeros(4, 8), torch.zeros(8))
    assert count.macs == 4 * 8 + 8 + 4 * 8


def test_samples_share_the_work_of_a_static_batch():
    assert torch_count(nn.Linear(16, 5), torch.zeros(4, 16), samples=4).macs == 16 * 5


def test_an_operator_of_torch_without_a_formula_is_a_reason_and_no_number():
    class Distance(nn.Module):
        def forward(self, x):
            return torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")

    count = torch_count(Distance(), torch.zeros(3, 4))
    assert count.macs is None
    assert "_cdist_forward" in count.reason


def onnx_count(nodes, inputs, outputs, weights=(), **more):
    def values(items):
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in items]

    tensors = [numpy_helper.from_array(array, name) for name, array in weights]
    graph = helper.make_graph(nodes, "net", values(inputs), values(outputs), tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    specs = tuple(TensorSpec(name=name, shape=shape, dtype="float32") for name, shape in inputs)
    return count_onnx(model, specs)


def zeros(*shape):
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize(("operator", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent_layers_of_onnx_are_counted(operator, gates):
    nodes = [helper.make_node(operator, ["x", "w", "r"], ["y"], hidden_size=32, direction="bidirectional")]
    weights = [("w", zeros(2, gates * 32, 16)), ("r", zeros(2, gates * 32, 32))]
    count = onnx_count(nodes, [("x", (10, 1, 16))], [("y", None)], weights)
    # axis 0 holds the ten steps here, which a static batch of ten shares out
    assert count.macs == 2 * gates * 32 * (16 + 32)
    assert count.parameters == 2 * gates * 32 * (16 + 32)


def test_a_dynamic_batch_counts_as_one_sample():
    nodes = [helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)]
    assert onnx_count(nodes, [("x", ("n", 16))], [("y", ("n", 5))], [("w", zeros(5, 16))]).macs == 16 * 5


def test_a_static_batch_is_shared_out():
    nodes = [helper.make_node("Gemm", ["x", "w"], ["y"], transA=1)]
    count = onnx_count(nodes, [("x", (4, 8))], [("y", (8, 5))], [("w", zeros(4, 5))])
    assert count.macs == 8 * 5 * 4 // 4


def test_work_that_no_share_fits_is_a_reason():
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    count = onnx_count(nodes, [("x", (2,))], [("y", (1,))], [("w", zeros(2, 1))])
    assert count.macs == 1
    nodes = [helper.make_node("MatMul", ["w", "v"], ["y"])]
    count = onnx_count(nodes, [("x", (2, 2))], [("y", (3, 1))], [("w", zeros(3, 3)), ("v", zeros(3, 1))])
    assert count.macs is None
    assert "not a multiple of one sample's" in count.reason


def test_an_unknown_shape_is_a_reason_and_no_number():
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    count = onnx_count(nodes, [("x", ("n", "steps", 16))], [("y", None)], [("w", zeros(16, 5))])
    assert count.macs is None
    assert count.reason == "the shape of 'y' is not known"
    assert count.parameters == 80


def test_a_shape_behind_computed_constants_is_found():
    constants = [("one", np.array([1], np.int64)), ("w", zeros(6, 5))]
    nodes = [
        helper.make_node("Shape", ["w"], ["size"]),
        helper.make_node("Slice", ["size", "zero", "one"], ["six"]),
        helper.make_node("Concat", ["one", "six"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["x", "wanted"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["y"]),
    ]
    constants.append(("zero", np.array([0], np.int64)))
    count = onnx_count(nodes, [("x", ("n", 2, 3))], [("y", None)], constants)
    assert count.macs == 6 * 5


def test_an_operator_of_onnx_without_a_rule_is_a_reason():
    nodes = [helper.make_node("DeformConv", ["x", "w", "o"], ["y"])]
    inputs = [("x", (1, 1, 4, 4)), ("o", (1, 18, 2, 2))]
    count = onnx_count(nodes, inputs, [("y", (1, 1, 2, 2))], [("w", zeros(1, 1, 3, 3))])
    assert count.macs is None
    assert count.reason == "no rule for the operator DeformConv"


def test_work_inside_a_branch_is_a_reason():
    def branch(name, node):
        return helper.make_graph([node], name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 4))])

    heavy = branch("a", helper.make_node("MatMul", ["x", "w"], ["a"]))
    light = branch("b", helper.make_node("Identity", ["x"], ["b"]))
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["flag"], to=TensorProto.BOOL),
        helper.make_node("If", ["flag"], ["y"], name="gate", then_branch=heavy, else_branch=light),
    ]
    count = onnx_count(nodes, [("x", (1, 4))], [("y", (1, 4))], [("w", zeros(4, 4))])
    assert count.macs is None
    assert count.reason == "the work depends on the data (If gate)"


def test_settings_of_operators_are_no_weights(tmp_path):
    nodes = [
        helper.make_node("BatchNormalization", ["x", "scale", "bias", "mean", "var"], ["n"]),
        helper.make_node("Clip", ["n", "low", "high"], ["c"]),
        helper.make_node("PRelu", ["c", "slope"], ["y"]),
    ]
    weights = [(name, zeros(3)) for name in ("scale", "bias", "mean", "var")]
    weights += [("low", zeros()), ("high", zeros()), ("slope", zeros(3, 1, 1)), ("unused", zeros(99))]
    count = onnx_count(nodes, [("x", (1, 3, 4, 4))], [("y", (1, 3, 4, 4))], weights)
    assert count.parameters == 3 + 3 + 3


def test_quantized_weights_count_once_each_and_their_scales_do_not():
    weights = [
        ("w8", np.zeros((16, 5), np.int8)),
        ("s", np.ones(5, np.float32)),
        ("z", np.zeros(5, np.int8)),
        ("b", zeros(5)),
    ]
    nodes = [
        helper.make_node("DequantizeLinear", ["w8", "s", "z"], ["w"], axis=1),
        helper.make_node("Gemm", ["x", "w", "b"], ["y"]),
    ]
    count = onnx_count(nodes, [("x", ("n", 16))], [("y", ("n", 5))], weights)
    assert (count.macs, count.parameters) == (80, 85)
