"""Which operators of a saved ONNX file compute in floating point, as onnxruntime itself lays it out.

QDQ nodes around an operator are a wish: the engine computes in integers only where it has a kernel for the
pattern. With int8 activations, for example, it left half of ResNet-20's convolutions in float although all stood
between QDQ nodes. So the file is loaded as the target loads it, and the graph the engine made of it is counted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ipj_edge.bundles.manifest import OperatorCount
from ipj_edge.plugins import needs
from ipj_edge_converters.onnx.files import load_onnx
from ipj_edge_converters.onnx.graphs import all_graphs
from ipj_edge_converters.onnx.runtime import as_engine_runs

_CONVERSIONS = frozenset(("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "Cast", "CastLike"))

# Operators that move or describe values and compute none.
_MOVES = frozenset(
    (
        *("Concat", "Constant", "ConstantOfShape", "DepthToSpace", "Dropout", "EyeLike", "Expand", "Flatten"),
        *("Gather", "GatherElements", "GatherND", "Identity", "If", "Loop", "NonZero", "OneHot", "Pad", "Range"),
        *("Reshape", "ReverseSequence", "Scan", "ScatterElements", "ScatterND", "Shape", "Size", "Slice"),
        *("SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where", "QLinearConcat"),
    )
)

# Operators that compute in integers by definition, whatever the type of their scales.
_INTEGER = (
    "QLinear",
    "QAttention",
    "QGemm",
    "ConvInteger",
    "MatMulInteger",
    "DynamicQuantizeMatMul",
    "DynamicQuantizeLSTM",
)


def count_operators(path: Path) -> OperatorCount:
    """Count the operators of a saved file that compute, and name those that compute in floating point.

    Raises:
        UnsupportedError: onnxruntime has no kernel for an operator; names it.
        ConversionError: onnxruntime refuses the file for another reason.
    """
    model = as_engine_runs(load_onnx(path), path.name, level="extended")
    floats, small = _tensors(model)
    computing = [node for graph in all_graphs(model.graph) for node in graph.node if _computes(node, floats | small)]
    in_float = [node for node in computing if _in_float(node, floats)]
    names = tuple(f"{node.op_type} {node.name}".strip() for node in in_float)
    return OperatorCount(total=len(computing), float_operators=names)


def _computes(node: Any, numbers: set[str]) -> bool:
    if node.op_type in _CONVERSIONS or node.op_type in _MOVES:
        return False
    return node.op_type.startswith(_INTEGER) or any(name in numbers for name in (*node.input, *node.output))


def _in_float(node: Any, floats: set[str]) -> bool:
    return not node.op_type.startswith(_INTEGER) and any(name in floats for name in (*node.input, *node.output))


def _tensors(model: Any) -> tuple[set[str], set[str]]:
    """Return the names of all floating-point tensors and of all 8-bit ones; shapes and indices are neither."""
    with needs("convert"):
        from onnx import TensorProto
    kinds = (
        {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE},
        {TensorProto.INT8, TensorProto.UINT8},
    )
    typed: dict[str, int] = {}
    for graph in all_graphs(model.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            typed[value.name] = value.type.tensor_type.elem_type
        typed |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    floats, small = ({name for name, kind in typed.items() if kind in wanted} for wanted in kinds)
    return floats, small
