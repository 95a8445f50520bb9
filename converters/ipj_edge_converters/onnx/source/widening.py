"""Precision of an ONNX model, and half precision widened to float32.

Every float16 or bfloat16 weight is a float32 number, so the weights are widened exactly. The widened model
computes in float32 where the original rounds after every operator: it is the more accurate of the two, it runs on
every engine, and it is what a source's reference run and its converters use.
"""

from __future__ import annotations

from typing import Any

from ipj_edge.plugins import needs
from ipj_edge.values import Precision
from ipj_edge_converters.onnx.graphs import all_nodes, all_tensors

_QUANTIZED = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
_QUANTIZED_PREFIXES = ("QLinear", "QGemm", "QAttention", "ConvInteger", "MatMulInteger", "DynamicQuantize")

# Attributes whose value is a dtype.
_DTYPE_ATTRIBUTES = ("to", "dtype", "output_dtype", "stash_type", "softmax_precision")


def precision_of(model: Any) -> Precision:
    """Return the precision a model is stored in: int8 as soon as anything in it is quantized."""
    with needs("convert"):
        from onnx import TensorProto
    if any(_is_quantized(node.op_type) for node in all_nodes(model)):
        return "int8"
    kinds = {tensor.data_type for tensor in all_tensors(model.graph)}
    kinds |= {value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.output)}
    if TensorProto.FLOAT16 in kinds:
        return "fp16"
    return "bf16" if TensorProto.BFLOAT16 in kinds else "fp32"


def has_half_precision(model: Any) -> bool:
    """Say whether any tensor or declared value of a model is float16 or bfloat16."""
    half = _half_types()
    declared = (*model.graph.input, *model.graph.output, *model.graph.value_info)
    return any(tensor.data_type in half for tensor in all_tensors(model)) or any(
        value.type.tensor_type.elem_type in half for value in declared
    )


def widen(message: Any) -> None:
    """Make every float16 and bfloat16 in a model float32: weights, constants, declared types, casts."""
    _widen(message, _half_types())


def _widen(message: Any, half: frozenset[int]) -> None:
    kind = message.DESCRIPTOR.name
    if kind == "TensorProto":
        if message.data_type in half:
            _widen_tensor(message)
        return
    if kind == "AttributeProto" and message.name in _DTYPE_ATTRIBUTES and message.i in half:
        message.i = _float32()
    elif message.DESCRIPTOR.full_name == "onnx.TypeProto.Tensor" and message.elem_type in half:
        message.elem_type = _float32()
    for field, value in message.ListFields():
        if field.message_type is not None:
            for child in value if hasattr(value, "add") else (value,):
                _widen(child, half)


def _widen_tensor(tensor: Any) -> None:
    with needs("convert"):
        from onnx import numpy_helper
    wide = numpy_helper.from_array(numpy_helper.to_array(tensor).astype("float32"), tensor.name)
    tensor.CopyFrom(wide)


def _half_types() -> frozenset[int]:
    with needs("convert"):
        from onnx import TensorProto
    return frozenset((int(TensorProto.FLOAT16), int(TensorProto.BFLOAT16)))


def _float32() -> int:
    with needs("convert"):
        from onnx import TensorProto
    return int(TensorProto.FLOAT)


def _is_quantized(operator: str) -> bool:
    return operator in _QUANTIZED or operator.startswith(_QUANTIZED_PREFIXES)
