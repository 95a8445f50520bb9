"""Biases that their int32 cannot hold: the scale of their weights is raised until it can.

A bias is stored in steps of (input's scale · weight's scale). A filter whose weights are all zero, or tiny, has so
small a scale that a usual bias takes more steps than int32 has; ai-edge-quantizer 0.10 wraps it around without a
word. Pruned networks, and those with folded normalisations, have such filters.

The raised scale is |bias| / (2^30 · input's scale). It moves a sum of n products by less than n · 2^-23 · |bias|, far
less than one step of the output, which holds the bias itself in 255 steps.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from ipj_edge.protocols import Array
from ipj_edge_converters.tflite import file as tflite_file
from ipj_edge_converters.tflite.edit import add_buffer

# Half of int32: the other half is left to the sum of products.
_MOST_STEPS = float(1 << 30)
_LARGEST_WEIGHT = 127

# ai-edge-quantizer's name for the copy of a constant that readers need in different steps.
_COPY = re.compile(r"_duplicated_\d+$")

# Where an operator keeps its input, its weights and its bias.
_PLACES = {
    "CONV_2D": (0, 1, 2),
    "CONV_3D": (0, 1, 2),
    "DEPTHWISE_CONV_2D": (0, 1, 2),
    "FULLY_CONNECTED": (0, 1, 2),
    "TRANSPOSE_CONV": (2, 1, 3),
}


class _Product(NamedTuple):
    """The quantized tensors of one product."""

    source: Any
    weight: Any
    bias: Any


def restore_biases(before: Any, after: Any) -> None:
    """Write every bias of a quantized file anew where int32 could not hold it.

    Args:
        before: The float file the quantized one was made from; tensors are known by their names.
        after: The quantized file, changed in place. A weight with several readers gets the largest scale they need.
    """
    floats = {
        tflite_file.text(tensor.name): _floats(before, tensor)
        for graph in before.subgraphs
        for tensor in graph.tensors
        if tflite_file.is_constant(before, tensor) and tflite_file.dtype_of(tensor) == "float32"
    }
    products = _products(after, floats)
    raised = {id(product.weight) for product in products if _raise_scale(product, floats)}
    for product in products:
        if id(product.weight) in raised:
            _write(after, product, floats)


def _products(model: Any, floats: dict[str, Array]) -> list[_Product]:
    """Return the products whose bias is int32 and whose weights and bias the float file has."""
    names = tflite_file.operator_names(model)
    found = []
    for graph, operator in tflite_file.operators_of(model):
        places = _PLACES.get(names[operator.opcodeIndex], ())
        indices = [int(operator.inputs[place]) for place in places if place < len(operator.inputs)]
        if len(indices) < 3 or min(indices) < 0:
            continue
        product = _Product(*(graph.tensors[index] for index in indices))
        kinds = [tflite_file.dtype_of(tensor) for tensor in product]
        known = all(_name(tensor) in floats for tensor in product[1:])
        if kinds == ["int8", "int8", "int32"] and known:
            found.append(product)
    return found


def _raise_scale(product: _Product, floats: dict[str, Array]) -> bool:
    """Raise the weights' scales where the bias needs it; say whether any was raised."""
    scales = np.asarray(product.weight.quantization.scale, np.float64)
    needed = np.abs(floats[_name(product.bias)].ravel()) / (_MOST_STEPS * _input_scale(product))
    least = needed if len(scales) > 1 else needed.max(keepdims=True, initial=0)
    if not (least > scales).any():
        return False
    product.weight.quantization.scale = np.maximum(scales, least).astype(np.float32)
    return True


def _write(model: Any, product: _Product, floats: dict[str, Array]) -> None:
    """Write weights and bias in the steps that the weights' scales give."""
    found = product.weight.quantization
    scales = np.asarray(found.scale, np.float64)
    values = floats[_name(product.weight)].astype(np.float64)
    along = [1] * values.ndim
    along[found.quantizedDimension if len(scales) > 1 else 0] = len(scales)
    steps = np.clip(np.round(values / scales.reshape(along)), -_LARGEST_WEIGHT, _LARGEST_WEIGHT)
    # Buffers of their own: tensors with equal numbers share one.
    product.weight.buffer = add_buffer(model, steps.astype(np.int8).tobytes())
    bias_scales = scales * _input_scale(product)
    product.bias.quantization.scale = bias_scales.astype(np.float32)
    bias = np.round(floats[_name(product.bias)].ravel() / bias_scales)
    product.bias.buffer = add_buffer(model, bias.astype("<i4").tobytes())


def _name(tensor: Any) -> str:
    return _COPY.sub("", tflite_file.text(tensor.name))


def _input_scale(product: _Product) -> float:
    return float(product.source.quantization.scale[0])


def _floats(model: Any, tensor: Any) -> Array:
    return np.asarray(model.buffers[tensor.buffer].data, np.uint8).view("<f4").reshape(tflite_file.shape_of(tensor))
