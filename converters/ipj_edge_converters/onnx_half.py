"""float16 for ONNX, by the converter that comes with onnxruntime."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from ipj_edge.errors import ConversionError
from ipj_edge.plugins import needs
from ipj_edge_converters.onnx_files import load_onnx
from ipj_edge_converters.onnx_graphs import all_graphs
from ipj_edge_converters.onnx_quantize import kept_nodes, prepare
from ipj_edge_converters.quiet import first_line, quiet


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
        raise ConversionError(f"onnxruntime's float16 converter failed: {first_line(error)}") from error
    for graph in all_graphs(half.graph):
        # It declares float16 for what the operators left out give in float32; the true types are inferred anew.
        del graph.value_info[:]
    return half
