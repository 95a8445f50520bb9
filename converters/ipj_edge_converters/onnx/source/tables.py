"""How many rows the tables have that an ONNX model's integer inputs index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipj_edge.plugins import needs
from ipj_edge.values import TensorSpec
from ipj_edge_converters.sources.described import with_table_ranges

# These hand on the values of their first input; what they do to the shape does not matter to an index.
_SAME_VALUES = frozenset(
    ("Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Flatten", "Expand", "Slice", "Tile")
)
_LOOK_UPS = ("Gather", "GatherElements")


def with_tables(model: Any, inputs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """Give integer inputs without a value range the rows of the smallest table that they index."""
    return with_table_ranges(inputs, _rows(model))


def _rows(model: Any) -> dict[str, int]:
    """Return rows of the smallest table by the name of the input that indexes it."""
    shapes = _shapes(model)
    origin = {value.name: value.name for value in model.graph.input}
    rows: dict[str, int] = {}
    for node in model.graph.node:  # which are in topological order
        if node.op_type in _SAME_VALUES and node.input and node.input[0] in origin:
            origin[node.output[0]] = origin[node.input[0]]
        if node.op_type in _LOOK_UPS and node.input[1] in origin:
            size = _size(shapes.get(node.input[0], ()), _axis(node))
            name = origin[node.input[1]]
            if size is not None:
                rows[name] = min(size, rows.get(name, size))
    return rows


def _size(shape: Sequence[int], axis: int) -> int | None:
    return shape[axis] if -len(shape) <= axis < len(shape) and shape[axis] > 0 else None


def _axis(node: Any) -> int:
    return next((int(attribute.i) for attribute in node.attribute if attribute.name == "axis"), 0)


def _shapes(model: Any) -> dict[str, Sequence[int]]:
    """Return the known sizes of every tensor, 0 for a size that is not known."""
    with needs("convert"):
        import onnx
    graph = onnx.shape_inference.infer_shapes(model).graph
    known: dict[str, Sequence[int]] = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info):
        known.setdefault(value.name, [int(size.dim_value) for size in value.type.tensor_type.shape.dim])
    return known
