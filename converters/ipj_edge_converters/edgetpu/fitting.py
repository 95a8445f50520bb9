"""Spell a full-int8 .tflite file as the Edge TPU's compiler of 2021 can read it; what it computes stays the same."""

from __future__ import annotations

from typing import Any

from ipj_edge_converters.tflite import file as tflite_file

_FULLY_CONNECTED = "FULLY_CONNECTED"
# Version 4 is int8; 5 and above add what is not used here (keep_num_dims, no bias, newer types).
_INT8_VERSION = 4


def fit(model: Any) -> None:
    """Drop ``keep_num_dims`` of fully connected operators where it changes nothing, and the version it asks for.

    It changes nothing where the output has two dimensions anyway. litert-torch sets it always.
    """
    names = tflite_file.operator_names(model)
    found = [
        (graph, operator)
        for graph, operator in tflite_file.operators_of(model)
        if names[operator.opcodeIndex] == _FULLY_CONNECTED
    ]
    if not all(_is_plain(model, graph, operator) for graph, operator in found):
        return
    for _, operator in found:
        operator.builtinOptions.keepNumDims = False
        code = model.operatorCodes[operator.opcodeIndex]
        code.version = min(code.version, _INT8_VERSION)


def _is_plain(model: Any, graph: Any, operator: Any) -> bool:
    """Say whether version 4 describes the operator: two dimensions, 8-bit numbers, a bias."""
    tensors = tflite_file.present(graph, operator.inputs)
    made = graph.tensors[operator.outputs[0]]
    eight_bits = {tflite_file.dtype_of(tensor) for tensor in (*tensors[:2], made)} == {"int8"}
    return eight_bits and len(tensors) == 3 and len(tflite_file.shape_of(made)) == 2
