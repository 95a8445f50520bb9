"""The ONNX converter for onnxruntime on CPUs: fp32 as it is, static int8 in QDQ form, dynamic int8."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from ipj_edge.errors import DataError, TargetUnavailableError
from ipj_edge.plugins import needs
from ipj_edge.protocols import ConversionTask, Converter, StageFiles
from ipj_edge.values import Port, Precision, Scheme
from ipj_edge_converters.onnx.cut import cut_onnx
from ipj_edge_converters.onnx.files import load_onnx, save_onnx
from ipj_edge_converters.onnx.graphs import opset_of
from ipj_edge_converters.onnx.macs import count_onnx
from ipj_edge_converters.onnx.operators import count_operators
from ipj_edge_converters.onnx.quantize.dynamic import quantize_dynamically
from ipj_edge_converters.onnx.quantize.static import Choices, choices_of, quantize
from ipj_edge_converters.onnx.stage import last_exit_only
from ipj_edge_converters.quantization.instruction_sets import assumed_by_quantized, has_exact_dot_products
from ipj_edge_converters.quantization.trained_ranges import notes_on_strays
from ipj_edge_converters.sources.feeds import static_batch
from ipj_edge_converters.sources.forms import onnx_path

_FILE = "model.onnx"


class ToOnnx:
    """Makes the files of the target ``onnxruntime-cpu``."""

    name = "to-onnx"
    form = "onnx"
    targets: tuple[str, ...] = ("onnxruntime-cpu",)
    precisions: tuple[Precision, ...] = ("fp32", "int8")
    schemes: tuple[Scheme, ...] = ("static", "dynamic")

    def convert(self, task: ConversionTask) -> StageFiles:
        """Write ``model.onnx`` and read it back.

        Raises:
            TargetUnavailableError: the source is already quantized and another precision is wanted.
            ConfigError: the instruction set is not known, or a pattern of operators to keep in float matches none.
            DataError: static int8 without calibration data for every input.
            ConversionError: the quantizer failed.
        """
        model, isa, notes = _converted(task)
        files = write_and_read_back(model, task, isa, notes)
        return _cut(task, files) if task.options.split_at else files


def _cut(task: ConversionTask, files: StageFiles) -> StageFiles:
    """Cut the whole file into stages; the file itself then computes the last exit alone."""
    path = task.into / files.file
    stages = cut_onnx(path, task.options.split_at, task.source.inputs, task.into)
    unsplit = last_exit_only(load_onnx(path), stages[-1].exit_output)
    files = write_and_read_back(unsplit, task, files.isa, files.notes)
    return msgspec.structs.replace(files, stages=stages, counted=count_onnx(unsplit, task.source.inputs))


def _converted(task: ConversionTask) -> tuple[Any, str, tuple[str, ...]]:
    """Return the model to write, the instruction set it assumes, and notes on it."""
    source: Path = onnx_path(task.source)
    if task.source.precision == "int8":
        return *_passed_through(task, source), ()
    if task.precision == "fp32":
        return load_onnx(source), "", ()
    exact = has_exact_dot_products(task.options.isa)
    isa = "vnni" if exact else ""
    if task.options.int8_scheme == "dynamic":
        return quantize_dynamically(source, keep_float=task.options.keep_float, reduce_range=not exact), isa, ()
    model, notes = statically_quantized(task, source, choices_of(task))
    return model, isa, notes


def statically_quantized(task: ConversionTask, source: Path, choices: Choices) -> tuple[Any, tuple[str, ...]]:
    """Return the model of an ONNX file quantized on the task's calibration data, and notes on its trained ranges.

    Raises:
        DataError: there is none.
    """
    if task.calibration is None:
        raise DataError("int8 needs calibration data: real samples that the model will meet")
    model, strays = quantize(source, task.source.inputs, task.calibration, choices)
    return model, notes_on_strays(strays, choices.ranges)


def _passed_through(task: ConversionTask, source: Path) -> tuple[Any, str]:
    if task.precision != "int8":
        raise TargetUnavailableError(
            f"'{task.source.file}' is already quantized and keeps its own scales; {task.precision} cannot be had "
            "from it: ask for int8, or convert the float model"
        )
    model = load_onnx(source)
    return model, assumed_by_quantized(model, task)


def _with_shapes(model: Any) -> Any:
    with needs("convert"):
        from onnx import shape_inference
    return shape_inference.infer_shapes(model)


def write_and_read_back(model: Any, task: ConversionTask, isa: str, notes: tuple[str, ...] = ()) -> StageFiles:
    """Write ``model.onnx`` and describe what the file says."""
    path = task.into / _FILE
    save_onnx(_with_shapes(model), path)
    model = load_onnx(path)
    takes = tuple(_port(value) for value in model.graph.input)
    return StageFiles(
        file=path.name,
        takes=takes,
        adds=tuple(_port(value) for value in model.graph.output),
        static_batch=static_batch(task.source.inputs),
        operators=count_operators(path),
        versions={**task.source.versions, **{name: version(name) for name in ("onnx", "onnxruntime")}},
        isa=isa,
        opset=opset_of(model),
        notes=notes,
        scheme=task.options.int8_scheme if task.precision == "int8" and task.source.precision != "int8" else None,
    )


def _port(value: Any) -> Port:
    with needs("convert"):
        from onnx import helper
    tensor = value.type.tensor_type
    shape = tuple(size.dim_param if size.dim_param else int(size.dim_value) for size in tensor.shape.dim)
    dtype = str(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return Port(name=value.name, engine_name=value.name, shape=shape, dtype=dtype)


_: type[Converter] = ToOnnx
