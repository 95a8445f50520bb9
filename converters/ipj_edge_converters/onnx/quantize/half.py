"""float16 for ONNX, by the converter that comes with onnxruntime."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from ipj_edge.errors import ConversionError, typed_line
from ipj_edge.plugins import needs
from ipj_edge_converters.onnx.files import load_onnx
from ipj_edge_converters.onnx.graphs import all_graphs
from ipj_edge_converters.onnx.quantize.static import kept_nodes, prepare
from ipj_edge_converters.onnx.stage import reads_of
from ipj_edge_converters.quiet import quiet


def halve(source: Path, *, keep_float: tuple[str, ...], half_io: bool) -> Any:
    """Return the model of a float ONNX file with weights and activations in float16.

    Args:
        source: A float ONNX file, weights inline.
        keep_float: Patterns of operators to leave in float32.
        half_io: Make inputs and outputs float16 as well.

    Raises:
        ConfigError: a pattern matches no operator.
        ConversionError: the converter failed.
    """
    with needs("convert"):
        float16 = import_module("onnxruntime.transformers.float16")
    model = prepare(load_onnx(source), source.name)
    excluded = kept_nodes(model, keep_float)
    try:
        with quiet("root", "onnxruntime"):
            half = float16.convert_float_to_float16(model, keep_io_types=not half_io, node_block_list=excluded)
    except Exception as error:
        raise ConversionError(f"onnxruntime's float16 converter failed: {typed_line(error)}") from error
    for graph in all_graphs(half.graph):
        # It declares float16 for what the operators left out give in float32; the true types are inferred anew.
        del graph.value_info[:]
    _drop_idle_casts(half.graph)
    _sort(half.graph)
    return half


def _drop_idle_casts(graph: Any) -> None:
    """Take out casts of a weight to the type it already has, which the converter puts before operators left out."""
    kinds = {tensor.name: tensor.data_type for tensor in graph.initializer}
    idle = {
        node.output[0]: node
        for node in graph.node
        if node.op_type == "Cast" and kinds.get(node.input[0]) == node.attribute[0].i
    }
    for node in graph.node:
        node.input[:] = [idle[name].input[0] if name in idle else name for name in node.input]
    for node in idle.values():
        graph.node.remove(node)


def _sort(graph: Any) -> None:
    """Bring the nodes into an order in which each follows what it takes, as the standard asks; casts come last."""
    makers = {name: node for node in graph.node for name in node.output}
    ordered: list[Any] = []
    done: set[int] = set()

    def place(node: Any) -> None:
        waiting = [(node, iter(reads_of(node)))]
        while waiting:
            current, inputs = waiting[-1]
            before = next((makers[name] for name in inputs if name in makers and id(makers[name]) not in done), None)
            if before is not None:
                waiting.append((before, iter(reads_of(before))))
                continue
            waiting.pop()
            if id(current) not in done:
                done.add(id(current))
                ordered.append(current)

    nodes = list(graph.node)
    for node in nodes:
        place(node)
    copies = [type(node).FromString(node.SerializeToString()) for node in ordered]
    del graph.node[:]
    graph.node.extend(copies)
