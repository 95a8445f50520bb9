"""Write ONNX files that name no machine and are the same bytes each time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ipj_edge.errors import ConversionError
from ipj_edge.plugins import needs
from ipj_edge_converters.onnx.graphs import all_graphs, all_nodes

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


def rename_tensors(model: Any, names: Mapping[str, str]) -> None:
    """Give tensors new names wherever a model mentions them, inner graphs included.

    Raises:
        ConversionError: a new name is taken by another tensor.
    """
    taken = {name for node in all_nodes(model) for name in (*node.input, *node.output)} - set(names)
    clash = sorted(taken & set(names.values()))
    if clash:
        raise ConversionError(f"the tensor name {', '.join(clash)} is taken inside the model: rename it there")
    for node in all_nodes(model):
        for places in (node.input, node.output):
            places[:] = [names.get(name, name) for name in places]
    for graph in all_graphs(model.graph):
        for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
            value.name = names.get(value.name, value.name)


def set_dimension(model: Any, name: str, number: int) -> None:
    """Make a dynamic size a number in every declared shape; sizes computed from it are left to be inferred."""
    word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param == name:
                size.dim_value = number
            elif word.search(size.dim_param):
                size.Clear()
