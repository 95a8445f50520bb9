"""What a .tflite file keeps from one inference to the next."""

from __future__ import annotations

from typing import Any

from ipj_edge.bundles.manifest import StateTensor
from ipj_edge_converters.tflite import file as tflite_file

# An operator that names a variable shared by all graphs of a file; what is in it is set by ASSIGN_VARIABLE.
_RESOURCE = "VAR_HANDLE"


def read_state(model: Any) -> tuple[StateTensor, ...]:
    """Return the tensors that keep their values between inferences: variables of recurrent operators, and resources."""
    return (*_variables(model), *_resources(model))


def _variables(model: Any) -> list[StateTensor]:
    # Only what an operator touches: cutting files leaves variables behind that nothing uses.
    touched = {
        id(tensor)
        for graph, operator in tflite_file.operators_of(model)
        for tensor in tflite_file.present(graph, operator.inputs)
    }
    return [
        StateTensor(
            name=tflite_file.text(tensor.name),
            shape=tflite_file.shape_of(tensor),
            dtype=tflite_file.dtype_of(tensor),
            kind="variable",
        )
        for graph in model.subgraphs
        for tensor in graph.tensors
        if tensor.isVariable and id(tensor) in touched
    ]


def _resources(model: Any) -> list[StateTensor]:
    names = tflite_file.operator_names(model)
    handles = {
        tflite_file.text(operator.builtinOptions.sharedName)
        for _, operator in tflite_file.operators_of(model)
        if names[operator.opcodeIndex] == _RESOURCE
    }
    return [StateTensor(name=name, shape=(), dtype="resource", kind="resource") for name in sorted(handles)]
