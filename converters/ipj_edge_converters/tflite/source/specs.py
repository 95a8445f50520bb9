"""What callers give to and get from a .tflite file: real values, the file's layout, the batch first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ipj_edge.errors import UnsupportedError
from ipj_edge.values import Port, TensorSpec
from ipj_edge_converters.tflite import file as tflite_file
from ipj_edge_converters.tflite.entry import TfliteEntry
from ipj_edge_converters.tflite.file import TfliteTensor

_QUANTIZED = frozenset({"int8", "uint8", "int16"})
# These look at rows and columns, which TFLite lays out (batch, height, width, channels).
_IMAGE_OPERATORS = frozenset(
    (
        *("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"),
        *("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "SPACE_TO_DEPTH", "DEPTH_TO_SPACE"),
    )
)
# These keep the layout of what they take.
_SAME_LAYOUT = frozenset(
    ("QUANTIZE", "DEQUANTIZE", "CAST", "ADD", "SUB", "MUL", "DIV", "PAD", "PADV2", "MIRROR_PAD", "MINIMUM", "MAXIMUM")
)


def input_specs(model: Any, entry: TfliteEntry) -> tuple[TensorSpec, ...]:
    """Describe the inputs.

    Raises:
        UnsupportedError: an input of strings or another type that arrays do not have.
    """
    batch = batch_of(entry)
    return tuple(
        _spec(
            tensor,
            batched=_has_batch(tensor, batch),
            open_axes=entry.open_sizes[tensor.argument],
            layout=_layout(model, tensor),
        )
        for tensor in entry.inputs
    )


def output_specs(entry: TfliteEntry, inputs: Sequence[TensorSpec], answers: Sequence[Any]) -> tuple[TensorSpec, ...]:
    """Describe the outputs, with the sizes of what the engine answered to one batch."""
    batch = batch_of(entry)
    first = next((spec.shape[0] for spec in inputs if spec.batch_axis is not None), None)
    specs = []
    for tensor, answer in zip(entry.outputs, answers, strict=True):
        batched = first is not None and answer.ndim > 0 and answer.shape[0] == batch
        shape: tuple[int | str, ...] = (first, *answer.shape[1:]) if batched and first is not None else answer.shape
        specs.append(
            TensorSpec(name=tensor.argument, shape=shape, dtype=_real_dtype(tensor), batch_axis=0 if batched else None)
        )
    return tuple(specs)


def ports(tensors: Sequence[TfliteTensor]) -> tuple[Port, ...]:
    """Return inputs or outputs as the engine's file has them."""
    return tuple(
        Port(
            name=tensor.argument,
            engine_name=tensor.name,
            shape=tensor.shape,
            dtype=tensor.dtype,
            quantization=tensor.quantization,
        )
        for tensor in tensors
    )


def batch_of(entry: TfliteEntry) -> int:
    """Return the samples the file takes at once: the first size of its first input that has more than one axis."""
    return next((tensor.shape[0] for tensor in entry.inputs if len(tensor.shape) > 1), 1)


def to_stored(tensor: TfliteTensor, real: Any) -> Any:
    """Return real values as the file stores them: divide by the scale, round half to even, shift, clip."""
    if tensor.quantization is None:
        return np.asarray(real, dtype=tensor.dtype)
    limits = np.iinfo(tensor.dtype)
    steps = np.rint(real * np.float32(1.0 / tensor.quantization.scale)) + np.float32(tensor.quantization.zero_point)
    return np.clip(steps, limits.min, limits.max).astype(tensor.dtype)


def to_real(tensor: TfliteTensor, stored: Any) -> Any:
    """Return stored values as real ones."""
    if tensor.quantization is None:
        return stored
    scale, zero_point = tensor.quantization.scale, tensor.quantization.zero_point
    return (stored.astype(np.float32) - np.float32(zero_point)) * np.float32(scale)


def _spec(tensor: TfliteTensor, *, batched: bool, open_axes: tuple[int, ...], layout: str | None) -> TensorSpec:
    names = {axis: "batch" if axis == 0 and batched else f"{tensor.argument}_{axis}" for axis in open_axes}
    return TensorSpec(
        name=tensor.argument,
        shape=tuple(names.get(axis, size) for axis, size in enumerate(tensor.shape)),
        dtype=_real_dtype(tensor),
        batch_axis=0 if batched else None,
        layout=layout,
        value_range=_range(tensor),
    )


def _has_batch(tensor: TfliteTensor, batch: int) -> bool:
    return len(tensor.shape) > 1 and tensor.shape[0] == batch


def _real_dtype(tensor: TfliteTensor) -> str:
    if tensor.quantization is not None and tensor.dtype in _QUANTIZED:
        return "float32"
    try:
        return np.dtype(tensor.dtype).name
    except TypeError as error:
        raise UnsupportedError(f"'{tensor.argument}' holds {tensor.dtype}, which arrays cannot hold") from error


def _range(tensor: TfliteTensor) -> tuple[float, float] | None:
    """Return the real values a quantized tensor can hold; anything beyond is clipped."""
    if tensor.quantization is None or tensor.dtype not in _QUANTIZED:
        return None
    limits, scale = np.iinfo(tensor.dtype), tensor.quantization.scale
    zero_point = tensor.quantization.zero_point
    return scale * (limits.min - zero_point), scale * (limits.max - zero_point)


def _layout(model: Any, tensor: TfliteTensor) -> str | None:
    """Return ``NHWC`` for an input that reaches an operator over rows and columns; None where nothing tells."""
    if len(tensor.shape) != 4:
        return None
    graph, names = model.subgraphs[0], tflite_file.operator_names(model)
    reached = {int(index) for index in graph.inputs if tflite_file.text(graph.tensors[index].name) == tensor.name}
    for operator in graph.operators or []:
        name = names[operator.opcodeIndex]
        first = int(operator.inputs[0]) if operator.inputs is not None and len(operator.inputs) else -1
        if first in reached and name in _IMAGE_OPERATORS:
            return "NHWC"
        if first in reached and name in _SAME_LAYOUT:
            reached.update(int(index) for index in operator.outputs)
    return None
