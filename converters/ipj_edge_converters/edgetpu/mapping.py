"""Which operators the Edge TPU would run, predicted from the published table: no compiler, no device.

The compiler maps one subgraph: operators that depend on one that runs on the host are left to the host as well,
whether the Edge TPU could run them or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipj_edge.bundles.placement import OperatorPlacement, Placement
from ipj_edge_converters.edgetpu.limits import SECOND_SUBGRAPH, why_not
from ipj_edge_converters.edgetpu.operator import GraphOperator
from ipj_edge_converters.tflite import file as tflite_file
from ipj_edge_converters.tflite.counting import macs_of

_BORDER = frozenset({"QUANTIZE", "DEQUANTIZE"})


def predict(model: Any) -> Placement:
    """Predict the placement of a file's main graph."""
    graph, names = model.subgraphs[0], tflite_file.operator_names(model)
    operators = list(graph.operators or [])
    reasons = [why_not(GraphOperator(model, graph, each, names[each.opcodeIndex])) for each in operators]
    first = first_subgraph(graph, [not reason for reason in reasons])
    return Placement(
        found_by="table",
        operators=tuple(
            OperatorPlacement(
                name=tflite_file.text(graph.tensors[operator.outputs[0]].name),
                type=names[operator.opcodeIndex],
                accelerated=number in first,
                reason=reason or ("" if number in first else SECOND_SUBGRAPH),
                macs=macs_of(graph, operator, names[operator.opcodeIndex]),
                at_border=at_border(graph, operator, names[operator.opcodeIndex]),
            )
            for number, (operator, reason) in enumerate(zip(operators, reasons, strict=True))
        ),
        subgraphs=1 if first else 0,
    )


def at_border(graph: Any, operator: Any, name: str) -> bool:
    """Say whether an operator only converts numbers at the graph's inputs or outputs."""
    ends = {int(index) for index in (*graph.inputs, *graph.outputs)}
    touched = {int(index) for index in (*operator.inputs, *operator.outputs)}
    return name in _BORDER and bool(ends & touched)


def first_subgraph(graph: Any, supported: Sequence[bool]) -> set[int]:
    """Return the operators of the first part that the Edge TPU can run in one go.

    Parts are made as TensorFlow Lite's partitioner makes them (``lite/graph_info.cc``): as many operators of one
    kind as have all they need, then as many of the other kind, and so on.
    """
    waiting = list(range(len(supported)))
    known = _given(graph)
    while waiting:
        part: list[int] = []
        kind = None
        grown = True
        while grown:
            grown = False
            for number in list(waiting):
                ready = all(int(index) in known for index in _inputs(graph.operators[number]))
                if not ready or (kind is not None and supported[number] != kind):
                    continue
                kind = supported[number]
                part.append(number)
                waiting.remove(number)
                known.update(int(index) for index in graph.operators[number].outputs)
                grown = True
        if kind or not part:
            return set(part)
    return set()


def _inputs(operator: Any) -> list[int]:
    return [] if operator.inputs is None else [int(index) for index in operator.inputs if index >= 0]


def _given(graph: Any) -> set[int]:
    """Return the tensors that are there before anything runs: inputs, constants and variables."""
    made = {int(index) for operator in graph.operators or [] for index in operator.outputs}
    return {index for index in range(len(graph.tensors)) if index not in made}
