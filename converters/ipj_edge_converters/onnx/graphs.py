"""Walk ONNX graphs."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any


def all_graphs(graph: Any) -> Iterator[Any]:
    """Yield a graph and every graph inside its nodes' attributes, at any depth."""
    yield graph
    for node in graph.node:
        for inner in _inner_graphs(node):
            yield from all_graphs(inner)


def all_nodes(model: Any) -> Iterator[Any]:
    """Yield every node of a model: its graph's, its subgraphs' and its local functions'."""
    for graph in all_graphs(model.graph):
        yield from graph.node
    for function in model.functions:
        for node in function.node:
            yield node
            for inner in _inner_graphs(node):
                for graph in all_graphs(inner):
                    yield from graph.node


def made_from(graph: Any, operators: Collection[str]) -> set[str]:
    """Return the tensors of a graph that hang on a node of these operators, those inside other nodes included."""
    found: set[str] = set()
    for node in graph.node:  # which are in topological order
        inside = {each.op_type for inner in _inner_graphs(node) for part in all_graphs(inner) for each in part.node}
        if not found.isdisjoint(node.input) or not inside.isdisjoint(operators) or node.op_type in operators:
            found.update(node.output)
    return found


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


def _inner_graphs(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        yield from attribute.graphs
        if attribute.HasField("g"):
            yield attribute.g
