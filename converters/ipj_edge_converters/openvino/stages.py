"""Multi-exit models for OpenVINO: cut as ONNX (QDQ where int8 is wanted), then converted stage by stage.

The unsplit program is converted from the same ONNX file, so that it and the stages hold the same integers.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from ipj_edge.protocols import ConversionTask, StageFiles
from ipj_edge_converters.onnx.files import load_onnx, save_onnx
from ipj_edge_converters.onnx.macs import count_onnx
from ipj_edge_converters.onnx.quantize.static import choices_of, quantize
from ipj_edge_converters.onnx.stage import last_exit_only
from ipj_edge_converters.openvino.cut import cut_openvino
from ipj_edge_converters.quantization.instruction_sets import has_exact_dot_products
from ipj_edge_converters.quantization.trained_ranges import notes_on_strays
from ipj_edge_converters.sources.forms import onnx_path


class StagedOnnx(msgspec.Struct, frozen=True, kw_only=True):
    """A source as `ToOpenvino` sees it: the last exit of a multi-exit model, as an ONNX file of its own."""

    path: Path
    name: str
    file: str
    precision: str
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]

    def onnx_path(self) -> Path:
        """Return the file."""
        return self.path


def stage_and_convert(task: ConversionTask, convert: Any) -> StageFiles:
    """Write the stages and the unsplit program.

    Args:
        task: A task with exits.
        convert: `ToOpenvino.convert`, for the unsplit program.
    """
    source = task.source
    quantizing = task.precision == "int8" and source.precision != "int8"
    full_range = has_exact_dot_products(task.options.isa)
    strays: tuple[str, ...] = ()
    with TemporaryDirectory(prefix="ipj-edge-") as folder:
        whole = Path(folder) / "whole.onnx"
        if quantizing:
            model, strays = quantize(onnx_path(source), source.inputs, task.calibration or {}, choices_of(task))
            save_onnx(model, whole)
        else:
            save_onnx(load_onnx(onnx_path(source)), whole)
        stages = cut_openvino(whole, task.options.split_at, source.inputs, task.into)
        last = stages[-1].exit_output
        unsplit = Path(folder) / "unsplit.onnx"
        model = last_exit_only(load_onnx(whole), last)
        save_onnx(model, unsplit)
        view = StagedOnnx(
            path=unsplit,
            name=source.name,
            file=source.file,
            precision="int8" if quantizing else source.precision,
            inputs=source.inputs,
            outputs=tuple(spec for spec in source.outputs if spec.name == last),
        )
        options = msgspec.structs.replace(task.options, split_at=())
        files: StageFiles = convert(msgspec.structs.replace(task, source=view, options=options, calibration=None))
    tools = {name: version(name) for name in ("onnx", "onnxruntime")}
    return msgspec.structs.replace(
        files,
        stages=stages,
        counted=count_onnx(model, source.inputs),
        isa="vnni" if quantizing and full_range else files.isa,
        scheme="static" if quantizing else None,
        notes=(*files.notes, *notes_on_strays(strays, task.options.ranges)),
        versions={**files.versions, **tools},
    )
