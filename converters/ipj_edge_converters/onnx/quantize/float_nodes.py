"""Keep onnxruntime from quantizing the products that were left in floating point on purpose."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ipj_edge.plugins import needs

# What its optimizer `WeightBiasQuantization` takes on (onnxruntime 1.32).
_QUANTIZED_BY_THE_ENGINE = ("Conv", "ConvTranspose", "Gemm")


def hold_in_float(model: Any, names: Collection[str]) -> None:
    """Put an operator that changes nothing before these nodes, where they take a dequantized tensor.

    A float product between a DequantizeLinear and a QuantizeLinear is turned into an integer one when the session
    is created, weights and all. It is not where its input comes from anything else, and `Max` of one tensor is that
    tensor, which no optimizer removes.
    """
    with needs("convert"):
        from onnx import helper
    dequantized = {node.output[0] for node in model.graph.node if node.op_type == "DequantizeLinear"}
    nodes = list(model.graph.node)
    for node in nodes:
        if node.name not in names or node.op_type not in _QUANTIZED_BY_THE_ENGINE or node.input[0] not in dequantized:
            continue
        held = f"{node.input[0]}_for_{node.name}"
        place = list(model.graph.node).index(node)
        model.graph.node.insert(place, helper.make_node("Max", [node.input[0]], [held], name=f"{node.name}_in_float"))
        node.input[0] = held
