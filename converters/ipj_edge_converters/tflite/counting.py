"""Multiply-accumulates of one sample and number of weights of a .tflite file, counted over its operators."""

from __future__ import annotations

from typing import Any

from ipj_edge.errors import typed_line
from ipj_edge.protocols import MacCount
from ipj_edge_converters.tflite import file as tflite_file
from ipj_edge_converters.tflite.macs import operator_macs
from ipj_edge_converters.tflite.numbers import count_weights


def count_tflite(model: Any, batch: int) -> MacCount:
    """Count a file whose first graph takes ``batch`` samples at a time."""
    parameters = sum(count_weights(model).values())
    try:
        total, unknown = _total(model)
    except Exception as error:  # noqa: BLE001 # a count is not worth a conversion
        return MacCount(macs=None, reason=f"counting failed: {typed_line(error)}", parameters=parameters)
    if unknown:
        reason = f"no formula for the operator {', '.join(sorted(unknown))}"
        return MacCount(macs=None, reason=reason, parameters=parameters)
    if total % batch:
        reason = f"the work for a batch of {batch} is not a multiple of one sample's"
        return MacCount(macs=None, reason=reason, parameters=parameters)
    return MacCount(macs=total // batch, parameters=parameters)


def _total(model: Any) -> tuple[int, set[str]]:
    """Return the work of the first graph, and the operators without a formula."""
    graph, names = model.subgraphs[0], tflite_file.operator_names(model)
    total, unknown = 0, set[str]()
    for operator in graph.operators or []:
        name = names[operator.opcodeIndex]
        macs = macs_of(graph, operator, name)
        if macs is None:
            unknown.add(name)
        else:
            total += macs
    return total, unknown


def macs_of(graph: Any, operator: Any, name: str) -> int | None:
    """Return the multiply-accumulates of one operator; None where there is no formula for it."""
    reads = [
        tflite_file.shape_of(graph.tensors[index]) if index >= 0 else ()
        for index in (operator.inputs if operator.inputs is not None else ())
    ]
    made = tflite_file.present(graph, operator.outputs)
    options = operator.builtinOptions
    return operator_macs(
        name,
        reads,
        tflite_file.shape_of(made[0]) if made else (),
        left_transposed=bool(getattr(options, "adjX", False)),
    )
