"""The operators of a .tflite file, one by one."""

from __future__ import annotations

from typing import Any

import msgspec

from ipj_edge_converters.tflite import file as tflite_file
from ipj_edge_converters.tflite.counting import macs_of


class TfliteOperator(msgspec.Struct, frozen=True, kw_only=True):
    """One operator.

    Attributes:
        name: Name of the first tensor it makes.
        type: Its name in the schema, or a custom operator's own.
        version: Version of the operator the file asks for.
        graph: Number of the graph it is in.
        shape: Sizes of what it makes.
        dtype: numpy dtype of what it makes.
        macs: Multiply-accumulates; None where there is no formula.
    """

    name: str
    type: str
    version: int
    graph: int
    shape: tuple[int, ...]
    dtype: str
    macs: int | None


def list_operators(model: Any) -> tuple[TfliteOperator, ...]:
    """List the operators of all graphs in the order they run."""
    names = tflite_file.operator_names(model)
    return tuple(
        _listed(model, number, graph, operator, names[operator.opcodeIndex])
        for number, graph in enumerate(model.subgraphs)
        for operator in graph.operators or []
    )


def custom_operators(model: Any) -> tuple[str, ...]:
    """Return the names of custom operators, sorted."""
    custom = tflite_file.schema().BuiltinOperator.CUSTOM
    codes = model.operatorCodes or []
    return tuple(
        sorted(
            {
                tflite_file.text(code.customCode)
                for code in codes
                if max(code.builtinCode, code.deprecatedBuiltinCode) == custom
            }
        )
    )


def _listed(model: Any, number: int, graph: Any, operator: Any, name: str) -> TfliteOperator:
    made = tflite_file.present(graph, operator.outputs)
    return TfliteOperator(
        name=tflite_file.text(made[0].name) if made else "",
        type=name,
        version=int(model.operatorCodes[operator.opcodeIndex].version),
        graph=number,
        shape=tflite_file.shape_of(made[0]) if made else (),
        dtype=tflite_file.dtype_of(made[0]) if made else "",
        macs=macs_of(graph, operator, name),
    )
