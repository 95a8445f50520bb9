"""Which operators the Edge TPU would run, predicted from the published table: no compiler, no device.

The compiler maps one subgraph: operators that depend on one that runs on the host are left to the host as well,
whether the Edge TPU could run them or not. Those that it could run are numbered as the further subgraphs they form.
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
    parts = subgraphs(graph, [not reason for reason in reasons])
    return Placement(
        found_by="table",
        operators=tuple(
            OperatorPlacement(
                name=tflite_file.text(graph.tensors[operator.outputs[0]].name),
                type=names[operator.opcodeIndex],
                accelerated=parts[number] == 1,
                reason=reason or ("" if parts[number] == 1 else SECOND_SUBGRAPH),
                subgraph=parts[number] or None,
                macs=macs_of(graph, operator, names[operator.opcodeIndex]),
                at_border=at_border(graph, operator, names[operator.opcodeIndex]),
            )
            for number, (operator, reason) in enumerate(zip(operators, reasons, strict=True))
        ),
        subgraphs=1 if 1 in parts else 0,
    )


def at_border(graph: Any, operator: Any, name: str) -> bool:
    """Say whether an operator only converts numbers at the graph's inputs or outputs."""
    ends = {int(index) for index in (*graph.inputs, *graph.outputs)}
    touched = {int(index) for index in (*operator.inputs, *operator.outputs)}
    return name in _BORDER and bool(ends & touched)


def subgraphs(graph: Any, supported: Sequence[bool]) -> list[int]:
    """Return for every operator the number, from 1, of the subgraph of supported operators it is in; 0 for the others.

    Parts are made as TensorFlow Lite's partitioner makes them (``lite/graph_info.cc``): as many operators of one
    kind as have all they need, then as many of the other kind, and so on.
    """
    numbers, count = [0] * len(supported), 0
    waiting = list(range(len(supported)))
    known = _given(graph)
    while waiting:
        part = _next_part(graph, supported, waiting, known)
        if not part:
            break
        if supported[part[0]]:
            count += 1
            for number in part:
                numbers[number] = count
    return numbers


def _next_part(graph: Any, supported: Sequence[bool], waiting: list[int], known: set[int]) -> list[int]:
    """Take the next part out of the operators that wait, and add what it makes to the tensors that are known."""
    part: list[int] = []
    grown = True
    while grown:
        grown = False
        for number in list(waiting):
            other_kind = bool(part) and supported[number] != supported[part[0]]
            if other_kind or not known.issuperset(_inputs(graph.operators[number])):
                continue
            part.append(number)
            waiting.remove(number)
            known.update(int(index) for index in graph.operators[number].outputs)
            grown = True
    return part


def _inputs(operator: Any) -> list[int]:
    return [] if operator.inputs is None else [int(index) for index in operator.inputs if index >= 0]


def _given(graph: Any) -> set[int]:
    """Return the tensors that are there before anything runs: inputs, constants and variables."""
    made = {int(index) for operator in graph.operators or [] for index in operator.outputs}
    return {index for index in range(len(graph.tensors)) if index not in made}
