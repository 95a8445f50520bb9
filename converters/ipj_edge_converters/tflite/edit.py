"""Small edits of a .tflite file's object tree."""

from __future__ import annotations

import struct
from typing import Any

from ipj_edge_converters.tflite import file as tflite_file


def add_tensor(model: Any, graph: Any, *, like: int, shape: list[int], suffix: str) -> int:
    """Add a tensor to a graph, of the dtype of another and named after it, and return its index."""
    built, other = tflite_file.schema(), graph.tensors[like]
    tensor = built.TensorT()
    tensor.name = tflite_file.text(other.name) + suffix
    tensor.type, tensor.shape = other.type, shape
    tensor.buffer = add_buffer(model, None)
    graph.tensors.append(tensor)
    return len(graph.tensors) - 1


def add_transpose(model: Any, graph: Any, source: int, result: int, order: tuple[int, ...], *, first: bool) -> None:
    """Add a TRANSPOSE between two tensors of a graph, as its first operator or its last."""
    built = tflite_file.schema()
    axes = built.TensorT()
    axes.name, axes.type, axes.shape = f"order_{result}", built.TensorType.INT32, [len(order)]
    axes.buffer = add_buffer(model, struct.pack(f"<{len(order)}i", *order))
    graph.tensors.append(axes)
    operator = built.OperatorT()
    operator.opcodeIndex = _operator_code(model, built.BuiltinOperator.TRANSPOSE)
    operator.inputs, operator.outputs = [source, len(graph.tensors) - 1], [result]
    operator.builtinOptionsType, operator.builtinOptions = (
        built.BuiltinOptions.TransposeOptions,
        built.TransposeOptionsT(),
    )
    graph.operators.insert(0 if first else len(graph.operators), operator)


def _operator_code(model: Any, builtin: int) -> int:
    for index, code in enumerate(model.operatorCodes):
        if max(code.builtinCode, code.deprecatedBuiltinCode) == builtin:
            return index
    code = tflite_file.schema().OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = builtin
    code.version = 1
    model.operatorCodes.append(code)
    return len(model.operatorCodes) - 1


def add_buffer(model: Any, content: bytes | None) -> int:
    """Add a buffer to a file and return its index."""
    buffer = tflite_file.schema().BufferT()
    buffer.data = content
    model.buffers.append(buffer)
    return len(model.buffers) - 1
