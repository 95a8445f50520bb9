"""Stages of a multi-exit model that stay in float, as tensors of a .tflite file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from ipj_edge.protocols import ConversionTask
from ipj_edge.values import Port
from ipj_edge_converters.staging.precisions import only_in_float
from ipj_edge_converters.tflite import file as tflite_file
from ipj_edge_converters.tflite.cut import cut_tflite


def float_tensors(
    task: ConversionTask, data: bytes, takes: Sequence[Port], adds: Sequence[Port], batch: int
) -> tuple[str, ...]:
    """Return the operators, by their first output tensor, of the stages of a float .tflite file that stay float."""
    with TemporaryDirectory(prefix="ipj-edge-") as folder:
        whole = Path(folder) / "whole.tflite"
        whole.write_bytes(data)
        cuts = cut_tflite(whole, task.options.split_at, takes, adds, batch, Path(folder))
        names = [_first_outputs((Path(folder) / cut.file).read_bytes()) for cut in cuts]
    # Ends of a stage go by the model's names, in the whole file by the file's own.
    own = {port.name: port.engine_name for port in adds}
    return tuple(sorted(own.get(name, name) for name in only_in_float(task, names)))


def _first_outputs(data: bytes) -> list[str]:
    model = tflite_file.parse(data)
    return [
        tflite_file.text(graph.tensors[operator.outputs[0]].name)
        for graph in model.subgraphs
        for operator in graph.operators or []
        if len(operator.outputs)
    ]
