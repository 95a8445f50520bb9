"""Stages of a multi-exit model that stay in float, as ONNX nodes."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from ipj_edge.protocols import ConversionTask
from ipj_edge_converters.onnx.cut import cut_onnx
from ipj_edge_converters.onnx.files import load_onnx
from ipj_edge_converters.sources.forms import onnx_path
from ipj_edge_converters.staging.precisions import only_in_float


def float_nodes(task: ConversionTask) -> frozenset[str]:
    """Return the names of the ONNX nodes of stages that stay float."""
    if "fp32" not in task.options.stage_precisions:
        return frozenset()
    with TemporaryDirectory(prefix="ipj-edge-") as folder:
        cuts = cut_onnx(onnx_path(task.source), task.options.split_at, task.source.inputs, Path(folder))
        names = [[node.name for node in load_onnx(Path(folder) / cut.file).graph.node] for cut in cuts]
    return only_in_float(task, names)
