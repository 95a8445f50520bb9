"""Write ONNX files that name no machine and are the same bytes each time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ipj_edge.plugins import needs

_PRIVATE_FIELDS = ("doc_string", "metadata_props")


def strip_metadata(message: Any) -> None:
    """Clear every doc string and metadata entry at any depth; torch keeps stack traces with paths there."""
    for field, value in list(message.ListFields()):
        if field.name in _PRIVATE_FIELDS:
            message.ClearField(field.name)
        elif field.message_type is not None:
            for child in value if hasattr(value, "add") else (value,):
                strip_metadata(child)


def save_onnx(model: Any, path: Path) -> None:
    """Write a model with its weights inline and without metadata; the same model gives the same bytes."""
    strip_metadata(model)
    path.write_bytes(model.SerializeToString(deterministic=True))


def load_onnx(path: Path) -> Any:
    """Read a model that `save_onnx` wrote."""
    with needs("convert"):
        import onnx
    return onnx.load_model(str(path))


def rename_dimension(model: Any, old: str, new: str) -> None:
    """Rename a dynamic size wherever the main graph mentions it, also inside expressions such as ``2*s0``."""
    word = re.compile(rf"(?<!\w){re.escape(old)}(?!\w)")
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for size in value.type.tensor_type.shape.dim:
            if size.HasField("dim_param"):
                size.dim_param = word.sub(new, size.dim_param)


def set_dimension(model: Any, name: str, number: int) -> None:
    """Make a dynamic size a number in every declared shape; sizes computed from it are left to be inferred."""
    word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param == name:
                size.dim_value = number
            elif word.search(size.dim_param):
                size.Clear()
