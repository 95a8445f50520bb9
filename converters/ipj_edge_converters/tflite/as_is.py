"""A .tflite source for targets that run .tflite files: nothing is converted, everything is read back from the file."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import msgspec

from ipj_edge.errors import TargetUnavailableError, UnsupportedError
from ipj_edge.protocols import ConversionTask, Converter, SizedSource, StageFiles
from ipj_edge.values import Precision, TensorSpec
from ipj_edge_converters.sources.forms import tflite_path
from ipj_edge_converters.tflite import file as tflite_file
from ipj_edge_converters.tflite.convert import cut
from ipj_edge_converters.tflite.entry import read_entry
from ipj_edge_converters.tflite.numbers import read_numbers
from ipj_edge_converters.tflite.source.specs import batch_of, ports
from ipj_edge_converters.tflite.state import read_state

FILE = "model.tflite"


class TfliteAsIs:
    """Packages .tflite sources for `tflite-cpu` byte by byte, with the scales they have."""

    name = "tflite-as-is"
    form = "tflite"
    targets: tuple[str, ...] = ("tflite-cpu",)
    precisions: tuple[Precision, ...] = ("fp32", "fp16", "int8")

    def convert(self, task: ConversionTask) -> StageFiles:
        """Write ``model.tflite`` into ``task.into``.

        Raises:
            TargetUnavailableError: the source is quantized and another precision is wanted.
            UnsupportedError: the source is float and is to be quantized.
        """
        check_precision(task)
        data = tflite_path(task.source).read_bytes()
        (task.into / FILE).write_bytes(data)
        return cut(task, described(tflite_file.parse(tflite_file.inlined(data)), task.source))


def check_precision(task: ConversionTask) -> None:
    """Refuse any precision that is not the file's own.

    Raises:
        TargetUnavailableError: the source is quantized and another precision is wanted.
        UnsupportedError: the source is float and is to be quantized.
    """
    own, file = task.source.precision, task.source.file
    if own == task.precision:
        return
    if own == "int8":
        raise TargetUnavailableError(
            f"'{file}' is already quantized to int8 and keeps its own scales: leave out --precision, "
            f"or convert the {task.precision} model it was made from"
        )
    raise UnsupportedError(
        f"a .tflite file is packaged as it is, and '{file}' is {own}: to have {task.precision}, convert the torch "
        "or ONNX model it was made from"
    )


def described(model: Any, source: Any) -> StageFiles:
    """Say what a file takes and makes; its outputs go by the source's names."""
    entry, numbers = read_entry(model), read_numbers(model)
    only_size = isinstance(source, SizedSource) and source.only_size
    batch = batch_of(entry)
    outputs = (
        msgspec.structs.replace(port, name=spec.name, shape=_engine_shape(spec, batch))
        for port, spec in zip(ports(entry.outputs), source.outputs, strict=True)
    )
    return StageFiles(
        file=FILE,
        takes=ports(entry.inputs),
        adds=tuple(outputs),
        static_batch=batch,
        operators=tflite_file.count_operators(model),
        versions={"ai-edge-litert": version("ai-edge-litert")},
        notes=()
        if only_size
        else (f"TFLite files have one batch size, here {batch}; larger batches run one after another",),
        state=read_state(model),
        weights=numbers.weights,
        scheme="dynamic" if numbers.dynamic else None,
    )


def _engine_shape(spec: TensorSpec, batch: int) -> tuple[int | str, ...]:
    """Return the sizes the engine answered with: those in the file are stale where the user gave open sizes."""
    return tuple(batch if axis == spec.batch_axis else size for axis, size in enumerate(spec.shape))


_: type[Converter] = TfliteAsIs
