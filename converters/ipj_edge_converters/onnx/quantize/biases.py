"""Biases of matrix products as onnxruntime's quantizer wants them: one axis, one value a column."""

from __future__ import annotations

from typing import Any

from ipj_edge.plugins import needs


def flatten_biases(model: Any) -> None:
    """Give constant Gemm biases that are rows or single values their plain form of shape (columns,).

    Both are the same by broadcasting. onnxruntime 1.32 fuses MatMul and Add into a Gemm that keeps the row of an
    Add, shape (1, columns), and its quantizer then fails on it.
    """
    with needs("convert"):
        from onnx import numpy_helper
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type != "Gemm" or len(node.input) < 3 or not {node.input[1], node.input[2]} <= set(tensors):
            continue
        columns = _columns(node, tensors[node.input[1]])
        bias = numpy_helper.to_array(tensors[node.input[2]])
        if bias.shape == (columns,) or bias.size not in (1, columns):
            continue
        name = f"{node.input[2]}_flat{columns}"
        if name not in tensors:
            flat = numpy_helper.from_array(bias.reshape(-1).repeat(columns // bias.size), name)
            tensors[name] = flat
            model.graph.initializer.append(flat)
        node.input[2] = name


def _columns(node: Any, weight: Any) -> int:
    transposed = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
    return int(weight.dims[0 if transposed else 1])
