"""Stages of different precision: which operators of the whole model stay in floating point.

The whole model is quantized once, without the operators of the stages that stay float, and cut afterwards; so the
boundaries between int8 and float are those the quantizer itself puts there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from ipj_edge.protocols import ConversionTask
from ipj_edge.values import Port
from ipj_edge_converters import tflite_file
from ipj_edge_converters.cut_onnx import cut_onnx
from ipj_edge_converters.cut_tflite import cut_tflite
from ipj_edge_converters.onnx_files import load_onnx


def float_nodes(task: ConversionTask) -> frozenset[str]:
    """Return the names of the ONNX nodes of stages that stay float."""
    if "fp32" not in task.stage_precisions:
        return frozenset()
    with TemporaryDirectory(prefix="ipj-edge-") as folder:
        cuts = cut_onnx(task.source.onnx_path(), task.exits, task.source.inputs, Path(folder))
        names = [[node.name for node in load_onnx(Path(folder) / cut.file).graph.node] for cut in cuts]
    return _only_in_float(task, names)


def float_tensors(
    task: ConversionTask, data: bytes, takes: Sequence[Port], adds: Sequence[Port], batch: int
) -> tuple[str, ...]:
    """Return the operators, by their first output tensor, of the stages of a float .tflite file that stay float."""
    with TemporaryDirectory(prefix="ipj-edge-") as folder:
        whole = Path(folder) / "whole.tflite"
        whole.write_bytes(data)
        cuts = cut_tflite(whole, task.exits, takes, adds, batch, Path(folder))
        names = [_first_outputs((Path(folder) / cut.file).read_bytes()) for cut in cuts]
    # Ends of a stage go by the model's names, in the whole file by the file's own.
    own = {port.name: port.engine_name for port in adds}
    return tuple(sorted(own.get(name, name) for name in _only_in_float(task, names)))


def _only_in_float(task: ConversionTask, names: Sequence[Sequence[str]]) -> frozenset[str]:
    """Return the names that stages kept float have and the others have not (constants are in several)."""
    pairs = list(zip(task.stage_precisions, names, strict=True))
    quantized = {name for precision, found in pairs if precision != "fp32" for name in found}
    return frozenset(name for precision, found in pairs if precision == "fp32" for name in found) - quantized


def _first_outputs(data: bytes) -> list[str]:
    model = tflite_file.parse(data)
    return [
        tflite_file.text(graph.tensors[operator.outputs[0]].name)
        for graph in model.subgraphs
        for operator in graph.operators or []
        if len(operator.outputs)
    ]
