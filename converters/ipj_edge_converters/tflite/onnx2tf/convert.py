"""ONNX → TFLite by ``onnx2tf``, in float32; int8 and float16 are made of its file by our own quantizer."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import msgspec
import numpy as np

from ipj_edge.errors import TargetUnavailableError
from ipj_edge.protocols import Array, ChoosesOperators, ConversionTask, Converter, StageFiles
from ipj_edge.samples.data import Samples
from ipj_edge.values import Precision, Scheme, TensorSpec
from ipj_edge_converters.onnx.files import load_onnx, rename_tensors, set_dimension
from ipj_edge_converters.sources.feeds import example_arrays
from ipj_edge_converters.sources.forms import onnx_path
from ipj_edge_converters.tflite import file as tflite_file
from ipj_edge_converters.tflite.convert import batch_size, check_kernels, cut, static_shape, write_and_read_back
from ipj_edge_converters.tflite.onnx2tf.layout import in_source_layout
from ipj_edge_converters.tflite.onnx2tf.program import PROGRAM, find_program, float_tflite, program_version
from ipj_edge_converters.tflite.quantize.calibration import argument, output_argument

_SAMPLES = 3


class ToTfliteOnnx2tf:
    """Converts ONNX for `tflite-cpu`: the source's layout is kept, the batch size is fixed (one)."""

    name = "to-tflite-onnx2tf"
    form = "onnx"
    targets: tuple[str, ...] = ("tflite-cpu",)
    precisions: tuple[Precision, ...] = ("fp32", "fp16", "int8")
    schemes: tuple[Scheme, ...] = ("static", "dynamic")

    def convert(self, task: ConversionTask) -> StageFiles:
        """Convert, write ``model.tflite`` into ``task.into`` and read back what was written.

        Raises:
            TargetUnavailableError: onnx2tf is not on PATH, or the source is already quantized.
            UnsupportedError: TFLite or onnx2tf lacks an operator, or a size is not fixed.
            ConversionError: the conversion failed, or the file does not answer as its source.
            DataError: static int8 without calibration data.
        """
        return cut(task, converted(task))


def converted(task: ConversionTask, *, tensorwise: Sequence[str] = ("BATCH_MATMUL",)) -> StageFiles:
    """Convert an ONNX source; see `ToTfliteOnnx2tf.convert`.

    Args:
        task: What is asked for.
        tensorwise: Operators whose weights get one scale in static int8, not one a channel.
    """
    if task.source.precision == "int8":
        raise TargetUnavailableError(
            f"'{task.source.file}' is already quantized, and {PROGRAM} takes float models only: give the float "
            f"model and have it quantized for '{task.target}'"
        )
    program = find_program()
    batch = batch_size(task.source.inputs)
    data = tflite_file.inlined(float_tflite(program, _plain_model(task.source, batch)))
    check_kernels(data)
    data = in_source_layout(data, *_questions_and_answers(task, batch))
    versions = {PROGRAM: program_version(program), "ai-edge-litert": version("ai-edge-litert")}
    return write_and_read_back(data, task, batch, versions, tensorwise=tensorwise)


def _plain_model(source: Any, batch: int) -> Any:
    """Return the ONNX model with fixed sizes, its inputs and outputs named as litert-torch names them.

    onnx2tf changes marks in names, and two names could become one.
    """
    model = load_onnx(onnx_path(source))
    for spec in source.inputs:
        for name, size in zip(spec.shape, static_shape(spec, batch), strict=True):
            if isinstance(name, str):
                set_dimension(model, name, size)
    names = {spec.name: argument(index) for index, spec in enumerate(source.inputs)}
    names |= {spec.name: output_argument(index) for index, spec in enumerate(source.outputs)}
    rename_tensors(model, names)
    return model


def _questions_and_answers(task: ConversionTask, batch: int) -> tuple[list[dict[str, Array]], list[dict[str, Array]]]:
    """Return random samples and what the source answers.

    Real pictures may be grey or nearly flat, which hides a swapped axis. Integers (ids, settings) are drawn only
    where their range is known, and else taken from the calibration data; bytes are pixels and take any value.
    """
    source = task.source
    drawn = example_arrays([_with_range(spec) for spec in source.inputs], _SAMPLES * batch)
    arrays = {spec.name: array for spec, array in zip(source.inputs, drawn, strict=True)}
    for spec in source.inputs:
        if task.calibration is not None and spec.dtype != "float32" and spec.value_range is None:
            arrays[spec.name] = _as_many(task.calibration[spec.name], spec, _SAMPLES * batch)
    samples = Samples(arrays=arrays, labels=None, count=_SAMPLES * batch)
    feeds = [samples.rows(source.inputs, start, start + batch) for start in range(0, samples.count, batch)]
    answers = [source.run(each) for each in feeds]
    inputs, outputs = [spec.name for spec in source.inputs], [spec.name for spec in source.outputs]
    return (
        [{argument(index): each[name] for index, name in enumerate(inputs)} for each in feeds],
        [{output_argument(index): each[name] for index, name in enumerate(outputs)} for each in answers],
    )


def _with_range(spec: TensorSpec) -> TensorSpec:
    pixels = spec.dtype == "uint8" and spec.value_range is None
    return msgspec.structs.replace(spec, value_range=(0.0, 255.0)) if pixels else spec


def _as_many(values: Any, spec: TensorSpec, count: int) -> Array:
    array: Array = np.asarray(values)
    return array if spec.batch_axis is None else np.resize(array, (count, *array.shape[1:]))


_: type[Converter] = ToTfliteOnnx2tf
_operators: type[ChoosesOperators] = ToTfliteOnnx2tf
