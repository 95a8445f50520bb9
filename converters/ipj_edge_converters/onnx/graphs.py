"""Walk ONNX graphs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def all_graphs(graph: Any) -> Iterator[Any]:
    """Yield a graph and every graph inside its nodes' attributes, at any depth."""
    yield graph
    for node in graph.node:
        for inner in inner_graphs(node):
            yield from all_graphs(inner)


def all_nodes(model: Any) -> Iterator[Any]:
    """Yield every node of a model: its graph's, its subgraphs' and its local functions'."""
    for part in (model.graph, *model.functions):
        yield from nodes_of(part)


def nodes_of(part: Any) -> Iterator[Any]:
    """Yield every node of a graph or a local function, those of the graphs inside its nodes too."""
    for graph in all_graphs(part):
        yield from graph.node


def all_tensors(message: Any) -> Iterator[Any]:
    """Yield every constant tensor inside a protobuf message: initializers, attributes, sparse values."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for child in value if hasattr(value, "add") else (value,):
            if child.DESCRIPTOR.name == "TensorProto":
                yield child
            else:
                yield from all_tensors(child)


def opset_of(model: Any) -> int:
    """Return the version of the standard operator set a model uses; 0 when it uses none."""
    return next((int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)


def inner_graphs(node: Any) -> Iterator[Any]:
    """Yield the graphs in a node's attributes: branches and bodies of loops."""
    for attribute in node.attribute:
        yield from attribute.graphs
        if attribute.HasField("g"):
            yield attribute.g
