"""Read back from an ONNX model which operators compute in floating point."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ipj_edge.manifest import OperatorCount
from ipj_edge.plugins import needs

_CONVERSIONS = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "Cast", "CastLike"})

# Operators that move or describe values and compute none.
_MOVES = frozenset(
    (
        *("Concat", "Constant", "ConstantOfShape", "DepthToSpace", "Dropout", "EyeLike", "Expand", "Flatten"),
        *("Gather", "GatherElements", "GatherND", "Identity", "If", "Loop", "NonZero", "OneHot", "Pad", "Range"),
        *("Reshape", "ReverseSequence", "Scan", "ScatterElements", "ScatterND", "Shape", "Size", "Slice"),
        *("SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where"),
    )
)

# Operators that take integers by definition.
_INTEGER = ("QLinear", "QAttention", "QGemm", "ConvInteger", "MatMulInteger")

# An activation right after an integer operator, or right before a quantization, is folded into it by the engine:
# its bounds are the ends of the integer range.
_FOLDED = frozenset({"Relu", "Clip"})


def count_operators(model: Any) -> OperatorCount:
    """Count the operators that compute, and name those that compute in floating point.

    An operator computes in integers when all its float inputs come out of a DequantizeLinear. Subgraphs count too.
    """
    with needs("convert"):
        from onnx import shape_inference
    floats = _float_tensors(shape_inference.infer_shapes(model))
    total, found = 0, []
    for graph in all_graphs(model.graph):
        quantized, requantized = _boundaries(graph)
        for node in graph.node:
            if not _computes(node, floats):
                continue
            total += 1
            if not _in_integers(node, floats, quantized, requantized):
                found.append(f"{node.op_type} {node.name}".strip())
    return OperatorCount(total=total, float_operators=tuple(found))


def all_graphs(graph: Any) -> Iterator[Any]:
    """Yield a graph and every graph inside its nodes' attributes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*attribute.graphs, *((attribute.g,) if attribute.HasField("g") else ())):
                yield from all_graphs(inner)


def _boundaries(graph: Any) -> tuple[set[str], set[str]]:
    """Return the tensors that a DequantizeLinear makes, and those that nothing but a QuantizeLinear takes."""
    out = {name for node in graph.node if node.op_type == "DequantizeLinear" for name in node.output}
    into = {node.input[0] for node in graph.node if node.op_type == "QuantizeLinear"}
    others = {name for node in graph.node if node.op_type != "QuantizeLinear" for name in node.input}
    return out, into - others - {value.name for value in graph.output}


def _computes(node: Any, floats: set[str]) -> bool:
    if node.op_type in _CONVERSIONS or node.op_type in _MOVES:
        return False
    return node.op_type.startswith(_INTEGER) or any(name in floats for name in (*node.input, *node.output))


def _in_integers(node: Any, floats: set[str], quantized: set[str], requantized: set[str]) -> bool:
    if node.op_type.startswith(_INTEGER):
        return True
    if node.op_type in _FOLDED:
        return node.input[0] in quantized or all(name in requantized for name in node.output)
    return all(name in quantized for name in node.input if name in floats)


def _float_tensors(model: Any) -> set[str]:
    """Return the names of all tensors of a floating-point type, weights included."""
    with needs("convert"):
        from onnx import TensorProto
    kinds = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE}
    found: set[str] = set()
    for graph in all_graphs(model.graph):
        values = (*graph.input, *graph.output, *graph.value_info)
        found |= {value.name for value in values if value.type.tensor_type.elem_type in kinds}
        found |= {tensor.name for tensor in graph.initializer if tensor.data_type in kinds}
    return found
