"""Count the weights of an ONNX model."""

from __future__ import annotations

from math import prod
from typing import Any

from ipj_edge.plugins import needs
from ipj_edge_converters.onnx.graphs import all_graphs, all_nodes

# Constant operands that set an operator up and are no weights: scales and zero points, running statistics (torch
# does not count them among parameters either), bounds, paddings, sizes. By operator: the first and last position.
_SETTINGS = {
    "BatchNormalization": (3, 4),
    "Clip": (1, 2),
    "DequantizeLinear": (1, 2),
    "Pad": (1, 3),
    "QuantizeLinear": (1, 2),
    "Resize": (1, 3),
}

# Integer operands that are quantized weights. By operator: their positions.
_QUANTIZED = {
    "ConvInteger": (1,),
    "DequantizeLinear": (0,),
    "MatMulInteger": (1,),
    "QLinearConv": (3, 8),
    "QLinearMatMul": (3,),
}


def count_weights(model: Any) -> int:
    """Return the number of weights: elements of constant tensors that operators compute with, each once."""
    sizes, floats = _constants(model)
    used = {
        name
        for node in all_nodes(model)
        for position, name in enumerate(node.input)
        if name in sizes and _is_weight(node.op_type, position, is_float=name in floats)
    }
    return sum(sizes[name] for name in used)


def _is_weight(operator: str, position: int, *, is_float: bool) -> bool:
    if operator in _QUANTIZED and not is_float:
        return position in _QUANTIZED[operator]
    first, last = _SETTINGS.get(operator, (0, -1))
    return is_float and not first <= position <= last and not operator.startswith("QLinear")


def _constants(model: Any) -> tuple[dict[str, int], set[str]]:
    """Return the sizes of constant tensors with an axis, by name, and the names of those in floating point."""
    with needs("convert"):
        from onnx import TensorProto
    kinds = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
    tensors = {tensor.name: tensor for graph in all_graphs(model.graph) for tensor in graph.initializer}
    for node in all_nodes(model):
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            tensors[node.output[0]] = node.attribute[0].t
    sizes = {name: prod(tensor.dims) for name, tensor in tensors.items() if tensor.dims}
    return sizes, {name for name in sizes if tensors[name].data_type in kinds}
