"""Multiply-accumulates of one sample and number of weights of an ONNX model, counted over its inferred shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from ipj_edge.errors import ConversionError, typed_line
from ipj_edge.plugins import needs
from ipj_edge.protocols import MacCount
from ipj_edge.values import TensorSpec
from ipj_edge_converters.onnx.graphs import all_graphs
from ipj_edge_converters.onnx.runtime import as_engine_runs
from ipj_edge_converters.onnx.weights import count_weights
from ipj_edge_converters.sources.feeds import static_batch

Shape = tuple[int, ...]
ShapeTable = dict[str, Shape]


class _UncountableError(Exception):
    """Why a count is not possible."""


class _UnknownShapeError(_UncountableError):
    """A shape is missing; folding constants may bring it to light."""


def count_onnx(model: Any, inputs: Sequence[TensorSpec]) -> MacCount:
    """Count a model for one sample.

    Args:
        model: An ONNX model.
        inputs: Its inputs; the dynamic batch is taken as 1, a static batch of k is divided by k.
    """
    parameters = count_weights(model)
    try:
        total = _total(_for_one_sample(model, inputs))
        batch = static_batch(inputs) or 1
        if total % batch:
            raise _UncountableError(f"the work for a batch of {batch} is not a multiple of one sample's")
    except _UncountableError as error:
        return MacCount(macs=None, reason=str(error), parameters=parameters)
    return MacCount(macs=total // batch, parameters=parameters)


def node_macs(node: Any, shapes: ShapeTable) -> int | None:
    """Return the multiply-accumulates of one node; None when they cannot be counted.

    Args:
        node: A node of the main graph.
        shapes: Sizes of the tensors it reads and makes.
    """
    try:
        return _node_macs(node, shapes)
    except _UncountableError:
        return None


def _total(model: Any) -> int:
    try:
        return _sum(model)
    except _UnknownShapeError:
        return _sum(_folded(model))


def _sum(model: Any) -> int:
    shapes = _shapes(model)
    return sum(_node_macs(node, shapes) for node in model.graph.node)


def _folded(model: Any) -> Any:
    """Let onnxruntime compute what is constant: shapes behind a Pad or Reshape whose operand is computed."""
    try:
        return as_engine_runs(model, model.graph.name, level="basic")
    except ConversionError as error:
        raise _UncountableError(str(error)) from error


def _node_macs(node: Any, shapes: ShapeTable) -> int:
    if node.op_type in ("If", "Loop", "Scan"):
        inner = (graph for attribute in node.attribute for graph in (*attribute.graphs, attribute.g))
        if any(_multiplies(item) for graph in inner for part in all_graphs(graph) for item in part.node):
            raise _UncountableError(f"the work depends on the data ({node.op_type} {node.name})".replace(" )", ")"))
        return 0
    if not _multiplies(node):
        return 0
    rule = _RULES.get(node.op_type)
    if rule is None:
        raise _UncountableError(f"no rule for the operator {node.op_type}")
    try:
        return rule(node, shapes)
    except KeyError as error:
        raise _UnknownShapeError(f"the shape of {error.args[0]!r} is not known") from error


def _for_one_sample(model: Any, inputs: Sequence[TensorSpec]) -> Any:
    """Return a copy with the dynamic batch set to 1 and no declared shapes but the inputs'."""
    with needs("convert"):
        import onnx
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.value_info[:]
    for value in bare.graph.output:
        value.type.tensor_type.ClearField("shape")
    batched = {spec.name: spec for spec in inputs if spec.batch_axis is not None}
    for value in bare.graph.input:
        if (spec := batched.get(value.name)) is not None and isinstance(spec.shape[spec.batch_axis or 0], str):
            value.type.tensor_type.shape.dim[spec.batch_axis or 0].dim_value = 1
    return bare


def _shapes(model: Any) -> ShapeTable:
    """Infer the shape of every tensor of the main graph that has one."""
    with needs("convert"):
        import onnx
    try:
        graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except (onnx.shape_inference.InferenceError, RuntimeError) as error:
        raise _UncountableError(f"shapes cannot be inferred: {typed_line(error)}") from error
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.output, *graph.value_info):
        if (shape := _known(value)) is not None:
            shapes[value.name] = shape
    return shapes


def _known(value: Any) -> Shape | None:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape") or not all(size.HasField("dim_value") for size in tensor.shape.dim):
        return None
    return tuple(int(size.dim_value) for size in tensor.shape.dim)


def _convolution(weight: int) -> Callable[[Any, ShapeTable], int]:
    """Outputs × weights that meet in one output; the weight tensor is (out, in/groups, kernel…)."""
    return lambda node, shapes: prod(shapes[node.output[0]]) * prod(shapes[node.input[weight]][1:])


def _transposed(node: Any, shapes: ShapeTable) -> int:
    """Inputs × weights that one input meets; the weight tensor is (in, out/groups, kernel…)."""
    return prod(shapes[node.input[0]]) * prod(shapes[node.input[1]][1:])


def _matmul(node: Any, shapes: ShapeTable) -> int:
    """Outputs × length of the inner axis, which is the last of the left operand."""
    return prod(shapes[node.output[0]]) * shapes[node.input[0]][-1]


def _gemm(node: Any, shapes: ShapeTable) -> int:
    transposed = any(attribute.name == "transA" and attribute.i for attribute in node.attribute)
    return prod(shapes[node.output[0]]) * shapes[node.input[0]][0 if transposed else 1]


def _recurrent(node: Any, shapes: ShapeTable) -> int:
    """Steps × batch × (input weights + recurrent weights), all gates and directions; X is (steps, batch, in)."""
    return prod(shapes[node.input[0]][:2]) * (prod(shapes[node.input[1]]) + prod(shapes[node.input[2]]))


def _einsum(node: Any, shapes: ShapeTable) -> int:
    """Product of the sizes of all letters, for two operands that are written out in letters."""
    equation = next(attribute.s.decode() for attribute in node.attribute if attribute.name == "equation")
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    if len(terms) != 2 or "." in equation:
        raise _UncountableError(f"no rule for the Einsum {equation!r}")
    letters: dict[str, int] = {}
    for term, name in zip(terms, node.input, strict=True):
        letters.update(zip(term, shapes[name], strict=True))
    return prod(letters.values())


_RULES: dict[str, Callable[[Any, ShapeTable], int]] = {
    "Conv": _convolution(1),
    "ConvInteger": _convolution(1),
    "QLinearConv": _convolution(3),
    "ConvTranspose": _transposed,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "MatMulInteger": _matmul,
    "QLinearMatMul": _matmul,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
    "Einsum": _einsum,
}

# Multiplying operators without a rule; onnxruntime's own operators are not looked into either.
_NO_RULE = frozenset(("Attention", "DeformConv", "LinearAttention", "CausalConvWithState"))


def _multiplies(node: Any) -> bool:
    return node.op_type in _RULES or node.op_type in _NO_RULE or node.domain == "com.microsoft"
