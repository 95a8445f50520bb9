"""Where the operators of a compiled Edge TPU file run: those still in it run on the host."""

from __future__ import annotations

from typing import Any

import msgspec

from ipj_edge.bundles.placement import OperatorPlacement, Placement
from ipj_edge_converters.edgetpu.compiler import MAPPED, PROGRAM, CompilerLog
from ipj_edge_converters.edgetpu.mapping import predict
from ipj_edge_converters.tflite import file as tflite_file

CUSTOM_OPERATOR = "edgetpu-custom-op"


def compiled_placement(whole: Any, compiled: Any, log: CompilerLog) -> Placement:
    """Say where each operator of the whole file runs, by what is left of it in the compiled one.

    Args:
        whole: The file that was compiled.
        compiled: What the compiler made of it.
        log: What the compiler said.
    """
    names = tflite_file.operator_names(compiled)
    left = {
        tflite_file.text(graph.tensors[operator.outputs[0]].name)
        for graph, operator in tflite_file.operators_of(compiled)
        if names[operator.opcodeIndex] != CUSTOM_OPERATOR
    }
    predicted = predict(whole)
    return Placement(
        found_by="compiler",
        compiler=f"{PROGRAM} {log.version}",
        operators=tuple(_placed(operator, operator.name in left, log) for operator in predicted.operators),
        subgraphs=log.subgraphs,
        on_chip_bytes=log.on_chip_bytes,
        off_chip_bytes=log.off_chip_bytes,
    )


def _placed(operator: OperatorPlacement, on_host: bool, log: CompilerLog) -> OperatorPlacement:
    # The compiler's table is by type: where operators of a type fared differently it does not say which is which.
    statuses = [row.status for row in log.rows if row.type == operator.type and row.status != MAPPED]
    reason = " or ".join(dict.fromkeys(statuses)) or "not in the compiler's table"
    return msgspec.structs.replace(operator, accelerated=not on_host, reason=reason if on_host else "")
