"""The ONNX converter for onnxruntime on NVIDIA GPUs: fp32, fp16, and int8 in the form TensorRT computes in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ipj_edge.bundles.manifest import ProviderSpec
from ipj_edge.errors import TargetUnavailableError
from ipj_edge.protocols import ChoosesOperators, ChoosesProviders, ConversionTask, Converter, StageFiles
from ipj_edge.values import Precision, Scheme
from ipj_edge_converters.onnx.convert import statically_quantized, write_and_read_back
from ipj_edge_converters.onnx.files import load_onnx
from ipj_edge_converters.onnx.quantize.half import halve
from ipj_edge_converters.onnx.quantize.static import Choices
from ipj_edge_converters.sources.forms import onnx_path

_NAMES = {"cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}
_CUDA_INT8 = (
    "onnxruntime's CUDA provider computes a quantized file in floating point; only TensorRT computes it in integers"
)


class ToOnnxGpu:
    """Makes the files of the target ``onnxruntime-gpu``."""

    name = "to-onnx-gpu"
    form = "onnx"
    targets: tuple[str, ...] = ("onnxruntime-gpu",)
    precisions: tuple[Precision, ...] = ("fp32", "fp16", "int8")
    schemes: tuple[Scheme, ...] = ("static",)
    providers: tuple[str, ...] = tuple(_NAMES)

    def convert(self, task: ConversionTask) -> StageFiles:
        """Write ``model.onnx`` and read it back.

        Raises:
            TargetUnavailableError: the source is already quantized and another precision is wanted.
            ConfigError: a pattern of operators to keep in float matches none.
            DataError: int8 without calibration data for every input.
            ConversionError: the quantizer, or the float16 converter, failed.
        """
        model, notes = _converted(task)
        made = write_and_read_back(model, task, "")
        providers = _chosen(task)
        int8_in_float = task.precision == "int8" and providers[0] == "cuda"
        return msgspec.structs.replace(
            made,
            providers=tuple(ProviderSpec(name=_NAMES[name], options=_options(name, task)) for name in providers),
            notes=(*((_CUDA_INT8,) if int8_in_float else ()), *notes),
        )


def _converted(task: ConversionTask) -> tuple[Any, tuple[str, ...]]:
    """Return the model to write, and notes on it."""
    source: Path = onnx_path(task.source)
    if task.source.precision == "int8" and task.precision != "int8":
        raise TargetUnavailableError(
            f"'{task.source.file}' is already quantized and keeps its own scales; {task.precision} cannot be had "
            "from it: ask for int8, or convert the float model"
        )
    if task.precision == "fp32" or task.source.precision == "int8":
        return load_onnx(source), ()
    if task.precision == "fp16":
        return halve(source, keep_float=task.options.keep_float, half_io=task.options.half_io), ()
    return statically_quantized(
        task, source, Choices(keep_float=task.options.keep_float, symmetric=True, ranges=task.options.ranges)
    )


def _chosen(task: ConversionTask) -> tuple[str, ...]:
    """Return the providers: those asked for, else CUDA, with TensorRT before it where only that uses integers."""
    if task.options.providers:
        return task.options.providers
    return ("tensorrt", "cuda") if task.precision == "int8" else ("cuda",)


def _options(name: str, task: ConversionTask) -> dict[str, str]:
    """Return options that hold the provider to the bundle's precision (onnxruntime docs, CUDA and TensorRT pages).

    Both compute float32 products in TF32, with ten bits of mantissa, unless told otherwise.
    """
    if name == "cuda":
        return {"use_tf32": "0"}
    kinds = {"fp16": {"trt_fp16_enable": "1"}, "int8": {"trt_int8_enable": "1"}}
    return kinds.get(task.precision, {})


_: type[Converter] = ToOnnxGpu
_operators: type[ChoosesOperators] = ToOnnxGpu
_providers: type[ChoosesProviders] = ToOnnxGpu
