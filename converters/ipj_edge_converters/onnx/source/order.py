"""The order of nodes: ONNX asks that what is read stands before what reads it, and not every writer heeds it."""

from __future__ import annotations

from typing import Any

from ipj_edge.errors import SourceError, first_line
from ipj_edge.plugins import needs
from ipj_edge_converters.onnx.graphs import all_graphs
from ipj_edge_converters.onnx.stage import reads_of


def in_order(model: Any) -> bool:
    """Say whether every node of a model, those of inner graphs and local functions too, stands behind what it reads."""
    return all(_is_ordered(each) for part in (model.graph, *model.functions) for each in all_graphs(part))


def ordered(model: Any, file: str) -> Any:
    """Return the model with its nodes in topological order; the same model when they are so already.

    Args:
        model: The model.
        file: Its name, for the error.

    Raises:
        SourceError: there is no such order, as nodes wait for each other.
    """
    if in_order(model):
        return model
    with needs("convert"):
        import onnx_ir
    try:
        sorted_model = onnx_ir.serde.deserialize_model(model)
        for each in (sorted_model.graph, *sorted_model.functions.values()):
            each.sort()
    except ValueError as error:
        raise SourceError(f"the nodes of '{file}' wait for each other: {first_line(error)}") from error
    return onnx_ir.serde.serialize_model(sorted_model)


def _is_ordered(graph: Any) -> bool:
    waiting = {name for node in graph.node for name in node.output if name}
    for node in graph.node:
        if not waiting.isdisjoint(reads_of(node)):
            return False
        waiting.difference_update(node.output)
    return True
