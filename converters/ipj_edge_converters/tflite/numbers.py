"""Which numbers a .tflite file computes with, read from its tensors: names of files say what their makers hoped for."""

from __future__ import annotations

from math import prod
from typing import Any

import msgspec

from ipj_edge.values import Precision
from ipj_edge_converters.tflite import file as tflite_file
from ipj_edge_converters.tflite.macs import is_weight

_INTEGER_WEIGHTS = frozenset({"int8", "uint8", "int4", "int16"})
_CONVERSIONS = frozenset({"QUANTIZE", "DEQUANTIZE", "CAST", "DENSIFY"})
_FLOATS = frozenset({"float16", "float32", "float64", "bfloat16"})


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """What a file computes with.

    Attributes:
        precision: ``int8`` when it computes with integer weights, ``fp16`` when its weights are stored in half
            precision (and widened by the engine), ``fp32`` otherwise.
        dynamic: Integer weights, float activations: their ranges are found in each inference.
        weights: Number of weights by dtype.
        note: What a reader has to know; empty when there is nothing unusual.
    """

    precision: Precision
    dynamic: bool
    weights: dict[str, int]
    note: str = ""


def read_numbers(model: Any) -> Numbers:
    """Read precision and scheme of a file from its weights and from what its operators compute in."""
    weights = count_weights(model)
    integers = sum(weights.get(dtype, 0) for dtype in _INTEGER_WEIGHTS)
    floats = sum(weights.get(dtype, 0) for dtype in _FLOATS)
    over_integers, hybrid = _operators_by_numbers(model)
    left = tflite_file.count_operators(model).float_operators
    # A file without weights is quantized where all of it computes in integers.
    if over_integers and (integers or not (floats or left)):
        return Numbers(precision="int8", dynamic=False, weights=weights, note=_mixed_note(left))
    if hybrid and integers > floats:
        return Numbers(precision="int8", dynamic=True, weights=weights, note=_dynamic_note(weights))
    half = weights.get("float16", 0) > weights.get("float32", 0)
    return Numbers(precision="fp16" if half else "fp32", dynamic=False, weights=weights, note=_float_note(weights))


def _operators_by_numbers(model: Any) -> tuple[int, int]:
    """Count operators over integers with a scale, and operators over floats with integer weights."""
    names = tflite_file.operator_names(model)
    over_integers = hybrid = 0
    for graph, operator in tflite_file.operators_of(model):
        if names[operator.opcodeIndex] in _CONVERSIONS:
            continue
        reads = tflite_file.present(graph, operator.inputs)
        made = tflite_file.present(graph, operator.outputs)
        data = [*made, *(tensor for tensor in reads if not tflite_file.is_constant(model, tensor))]
        weights = [tensor for tensor in reads if tflite_file.is_constant(model, tensor)]
        if any(tflite_file.dtype_of(tensor) in _FLOATS for tensor in data):
            hybrid += any(tflite_file.dtype_of(tensor) in _INTEGER_WEIGHTS for tensor in weights)
        else:
            over_integers += any(tflite_file.dtype_of(tensor) in _INTEGER_WEIGHTS for tensor in data)
    return over_integers, hybrid


def count_weights(model: Any) -> dict[str, int]:
    """Count the weights of a file by dtype; shapes, axes and paddings are no weights, biases are.

    Weights that are shared count once.
    """
    names = tflite_file.operator_names(model)
    counted: dict[str, int] = {}
    seen: set[int] = set()
    for graph, operator in tflite_file.operators_of(model):
        for tensor in tflite_file.present(graph, operator.inputs):
            dtype = tflite_file.dtype_of(tensor)
            weight = tflite_file.is_constant(model, tensor) and is_weight(names[operator.opcodeIndex], dtype)
            if weight and tensor.buffer not in seen:
                seen.add(tensor.buffer)
                counted[dtype] = counted.get(dtype, 0) + prod(tflite_file.shape_of(tensor))
    return dict(sorted(counted.items()))


def weights_text(weights: dict[str, int]) -> str:
    """Write weights by dtype, most first: ``22,604 int8, 396 float32``."""
    ordered = sorted(weights.items(), key=lambda item: -item[1])
    return ", ".join(f"{count:,} {dtype}" for dtype, count in ordered) or "none"


def _float_note(weights: dict[str, int]) -> str:
    if set(weights) <= {"float32", "int32"}:
        return ""
    return f"the weights are stored as {weights_text(weights)}; the engine widens them and computes in float32"


def _dynamic_note(weights: dict[str, int]) -> str:
    return (
        f"dynamic-range int8: the weights are integers ({weights_text(weights)}), inputs, outputs and activations "
        "are float32, whatever the file is called"
    )


def _mixed_note(float_operators: tuple[str, ...]) -> str:
    if not float_operators:
        return ""
    return f"{len(float_operators)} operators stay in floating point: {', '.join(float_operators[:3])}"
