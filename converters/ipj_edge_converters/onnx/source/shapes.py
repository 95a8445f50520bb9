"""Names for dynamic sizes of an ONNX model, and its inputs as specs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ipj_edge.errors import SourceError
from ipj_edge.plugins import needs
from ipj_edge.values import TensorSpec
from ipj_edge_converters.onnx.files import rename_dimension, set_dimension
from ipj_edge_converters.onnx.source.value_shapes import settings
from ipj_edge_converters.sources.described import merge_described

_NAME = re.compile(r"(?!unk__\d)[A-Za-z_]\w*")  # tf2onnx calls sizes it does not know unk__7
_DTYPES = ("float32", "float64", "int64", "int32", "int16", "int8", "uint8", "uint16", "bool")


def name_dimensions(model: Any) -> None:
    """Give every dynamic size of an input a name; sizes of -1 and 0, ``?`` and no size at all are dynamic.

    A size without a name on axis 0 is the batch.

    Raises:
        SourceError: an input does not even state its rank.
    """
    batch = next((name for name in _first_sizes(model) if _NAME.fullmatch(name)), "batch")
    for value in model.graph.input:
        tensor = value.type.tensor_type
        if not tensor.HasField("shape"):
            raise SourceError(f"input '{value.name}' does not state its shape: export the model with shapes")
        for axis, size in enumerate(tensor.shape.dim):
            if _is_dynamic(size, axis) and not _NAME.fullmatch(size.dim_param):
                _name(model, size, batch if axis == 0 else _axis_name(value.name, axis))


def describe_inputs(model: Any, described: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """Describe a model's inputs, and fix in the model the open sizes that a user gave numbers for.

    Raises:
        SourceError: an input is of a kind that no array can be, or the user's description contradicts the model.
    """
    own = _specs(model)
    for before, after in zip(own, merge_described(own, described), strict=True):
        for name, size in zip(before.shape, after.shape, strict=True):
            if isinstance(name, str) and isinstance(size, int):
                set_dimension(model, name, size)
    return merge_described(_specs(model), described)


def batch_name(model: Any) -> str | None:
    """Return the name of the dynamic batch: the first named size on an input's axis 0."""
    return next((name for name in _first_sizes(model) if name), None)


def batch_axis(shape: Sequence[int | str], batch: str | int | None) -> int | None:
    """Find the batch axis: where the dynamic batch's name stands, or axis 0 if it has the static batch's size."""
    if isinstance(batch, str):
        return list(shape).index(batch) if batch in shape else None
    return 0 if shape and batch is not None and shape[0] == batch else None


def array_dtype(value: Any) -> str:
    """Return the numpy dtype of an input or output.

    Raises:
        SourceError: it is a sequence, a string or another thing that no target takes.
    """
    with needs("convert"):
        from onnx import helper
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise SourceError(f"'{value.name}' is a {str(kind).removesuffix('_type')}; only tensors are supported")
    dtype = str(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
    if dtype not in _DTYPES:
        raise SourceError(f"'{value.name}' is of type {dtype}; supported are {', '.join(_DTYPES)}")
    return dtype


def _specs(model: Any) -> tuple[TensorSpec, ...]:
    shared = settings(model)
    ranked = [value for value in model.graph.input if value.type.tensor_type.shape.dim and value.name not in shared]
    static = next((int(value.type.tensor_type.shape.dim[0].dim_value) for value in ranked), None)
    batch: str | int | None = batch_name(model) or static
    return tuple(_spec(value, None if value.name in shared else batch) for value in model.graph.input)


def _spec(value: Any, batch: str | int | None) -> TensorSpec:
    shape = tuple(size.dim_param or int(size.dim_value) for size in value.type.tensor_type.shape.dim)
    return TensorSpec(name=value.name, shape=shape, dtype=array_dtype(value), batch_axis=batch_axis(shape, batch))


def _first_sizes(model: Any) -> list[str]:
    """Return the names of the sizes on axis 0 of the inputs that have an axis; empty for a number."""
    shapes = (value.type.tensor_type.shape.dim for value in model.graph.input)
    return [str(sizes[0].dim_param) for sizes in shapes if sizes]


def _name(model: Any, size: Any, name: str) -> None:
    old = str(size.dim_param)
    size.dim_param = name
    if _NAME.match(old):  # a "?" here has nothing to do with a "?" elsewhere
        rename_dimension(model, old, name)


def _axis_name(tensor: str, axis: int) -> str:
    return re.sub(r"\W", "_", f"{tensor}_dim{axis}")


def _is_dynamic(size: Any, axis: int) -> bool:
    """Tell an open size from a stated one; a first size of 0 is how some exporters write an open batch."""
    return not size.HasField("dim_value") or size.dim_value < (1 if axis == 0 else 0)
