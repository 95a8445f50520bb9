"""Operators that were to stay in float, looked up in what the quantizer made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipj_edge.errors import ConversionError
from ipj_edge_converters.onnx.graphs import all_nodes


def quantizer_names(model: Any, names: Sequence[str]) -> list[str]:
    """Return the names by which onnxruntime's dynamic quantizer knows nodes that are to stay in float.

    It splits every Gemm into a MatMul and an Add before it looks at the names to leave out (onnxruntime 1.32,
    ``ONNXModel.replace_gemm_with_matmul``).
    """
    chosen = set(names)
    split = [f"{node.name}_MatMul" for node in model.graph.node if node.op_type == "Gemm" and node.name in chosen]
    return [*names, *split]


def check_kept(before: Any, after: Any, names: Sequence[str]) -> None:
    """Refuse a quantized model in which a node that was to stay in float does not.

    A node stays in float when what it gave is still given by a node of its type, or, for a Gemm, by the float MatMul
    and Add that it was split into.

    Raises:
        ConversionError: names the nodes.
    """
    chosen = set(names)
    makers = {name: node for node in all_nodes(after) for name in node.output}
    lost = [
        f"{node.op_type} {node.name}"
        for node in before.graph.node
        if node.name in chosen and not _stays(node, makers.get(node.output[0]), makers)
    ]
    if lost:
        raise ConversionError(f"--keep-float was not honoured by onnxruntime's quantizer: {', '.join(lost[:5])}")


def _stays(node: Any, made: Any, makers: dict[str, Any]) -> bool:
    # What is gone computes nothing: it was folded away.
    if made is None or made.op_type == node.op_type:
        return True
    if node.op_type != "Gemm":
        return False
    product = makers.get(made.input[0]) if made.op_type == "Add" else made
    return product is not None and product.op_type == "MatMul"
