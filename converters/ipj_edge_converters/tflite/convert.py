"""torch → TFLite by litert-torch, int8 and float16 by ai-edge-quantizer; what was made is read back from the file."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import msgspec
import numpy as np

from ipj_edge.errors import ConversionError, DataError, UnsupportedError, first_line, typed_line
from ipj_edge.plugins import needs
from ipj_edge.protocols import Array, ConversionTask, Converter, StageFiles
from ipj_edge.values import Port, Precision, Scheme, TensorSpec
from ipj_edge_converters.quantization.trained_ranges import notes_on_strays
from ipj_edge_converters.sources.forms import torch_module
from ipj_edge_converters.tflite import file as tflite_file
from ipj_edge_converters.tflite.cut import cut_tflite, last_exit_only, ports_of
from ipj_edge_converters.tflite.file import TfliteFacts, TfliteTensor
from ipj_edge_converters.tflite.litert_quiet import quiet_litert
from ipj_edge_converters.tflite.quantize.calibration import CalibrationSamples, argument, output_argument, quantized
from ipj_edge_converters.tflite.quantize.float_stages import float_tensors
from ipj_edge_converters.tflite.quantize.recipes import dynamically_quantized, kept_operators, with_half_weights

_FILE = "model.tflite"
_TOOLS = ("torch", "litert-torch", "ai-edge-litert")
# litert-torch 0.10: a missing lowering, then the node of torch's graph that any failed lowering was at.
_MISSING_LOWERING = re.compile(r"Lowering not found: ([\w.:]+)")
_FAILING_NODE = re.compile(r"While executing .*?target=torch\.ops\.([\w.]+)")
# ai-edge-litert 2.3: an operator without a kernel.
_NO_KERNEL = re.compile(r"unresolved custom op: ([^\s.]+)|Didn't find op for builtin opcode '(\w+)'")


class ToTflite:
    """Converts torch modules for `tflite-cpu`: the caller's layout is kept, the batch size is fixed (one)."""

    name = "to-tflite"
    form = "torch"
    targets: tuple[str, ...] = ("tflite-cpu",)
    precisions: tuple[Precision, ...] = ("fp32", "fp16", "int8")
    schemes: tuple[Scheme, ...] = ("static", "dynamic")

    def convert(self, task: ConversionTask) -> StageFiles:
        """Convert, write ``model.tflite`` into ``task.into`` and read back what was written.

        Raises:
            UnsupportedError: TFLite or its converter lacks an operator (named), or a size is not fixed.
            ConversionError: the conversion failed, or the file is not what was asked for.
            ConfigError: a pattern of operators to keep in float matches none.
            DataError: static int8 without calibration data.
            MissingDependencyError: the extra ``convert`` is not installed.
        """
        files = converted(task)
        return cut(task, files)


def cut(task: ConversionTask, files: StageFiles) -> StageFiles:
    """Cut the whole file into stages where exits are wanted; the file itself then computes the last exit alone."""
    if not task.options.split_at:
        return files
    path, batch = task.into / _FILE, files.static_batch or 1
    stages = cut_tflite(path, task.options.split_at, files.takes, files.adds, batch, task.into)
    last = stages[-1].exit_output
    data, counted = last_exit_only(path, last, files.takes, files.adds, batch)
    path.write_bytes(data)
    left = tflite_file.read_facts(data)
    return msgspec.structs.replace(
        files,
        takes=ports_of(left.inputs),
        adds=ports_of(left.outputs),
        operators=left.operators,
        stages=stages,
        counted=counted,
    )


def converted(task: ConversionTask, *, tensorwise: Sequence[str] = ("BATCH_MATMUL",)) -> StageFiles:
    """Convert a torch source; see `ToTflite.convert`.

    Args:
        task: What is asked for.
        tensorwise: Operators whose weights get one scale in static int8, not one a channel.
    """
    batch = batch_size(task.source.inputs)
    data = _float_file(task.source, batch)
    check_kernels(data)
    return write_and_read_back(data, task, batch, {tool: version(tool) for tool in _TOOLS}, tensorwise=tensorwise)


def batch_size(inputs: tuple[TensorSpec, ...]) -> int:
    """Return the batch size the file is fixed to: the source's own where it is a number, else 1."""
    sizes = {spec.shape[spec.batch_axis] for spec in inputs if spec.batch_axis is not None}
    fixed = {size for size in sizes if isinstance(size, int)}
    if len(fixed) > 1:
        raise UnsupportedError(f"the inputs have different batch sizes {sorted(fixed)}: give them one with --input")
    return fixed.pop() if fixed else 1


def static_shape(spec: TensorSpec, batch: int) -> tuple[int, ...]:
    """Return an input's sizes with the batch fixed.

    Raises:
        UnsupportedError: another size is dynamic.
    """
    shape = []
    for axis, size in enumerate(spec.shape):
        if isinstance(size, str) and axis != spec.batch_axis:
            raise UnsupportedError(
                f"'tflite-cpu' needs fixed sizes, but '{size}' of input '{spec.name}' is dynamic: "
                "give its size with --input"
            )
        shape.append(batch if axis == spec.batch_axis else int(size))
    return tuple(shape)


def _float_file(source: Any, batch: int) -> bytes:
    with needs("convert"):
        import torch

        with quiet_litert():
            import litert_torch
    # Two examples must not be one object: torch.export would take them for one input.
    examples = tuple(torch.from_numpy(_example(spec, batch)) for spec in source.inputs)
    # 64-bit integers at the border stay what the caller gives; litert-torch makes them 32-bit otherwise.
    keep_64 = any(spec.dtype == "int64" for spec in (*source.inputs, *source.outputs))
    module = torch_module(source)
    try:
        with quiet_litert(), torch.no_grad():
            data: bytes = litert_torch.convert(module, examples, enable_x64=keep_64).model_content()
    except Exception as error:
        # torch.export, jax and MLIR raise whatever they like about a model they cannot convert.
        raise _conversion_failure(error) from error
    return tflite_file.inlined(data)


def _example(spec: TensorSpec, batch: int) -> Array:
    return np.zeros(static_shape(spec, batch), dtype=spec.dtype)


def _conversion_failure(error: Exception) -> ConversionError:
    """Return one line that names the operator the conversion failed at, where there is one."""
    told = str(error)
    missing = _MISSING_LOWERING.search(told) or _FAILING_NODE.search(told)
    if missing:
        operator = missing[1]
        why = "" if missing.re is _MISSING_LOWERING else f" ({first_line(error)})"
        return UnsupportedError(
            f"TFLite has no form of '{operator}'{why}: replace it in the model or choose another target",
            (operator,),
        )
    return ConversionError(f"litert-torch could not convert the model: {typed_line(error)}")


def check_kernels(data: bytes) -> None:
    """Refuse a file with an operator that the engine has no kernel for; litert-torch writes such files."""
    from ai_edge_litert import interpreter

    plain = interpreter.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    try:
        interpreter.Interpreter(model_content=data, experimental_op_resolver_type=plain).allocate_tensors()
    except (ValueError, RuntimeError) as error:
        missing = _NO_KERNEL.search(str(error))
        if not missing:
            raise ConversionError(f"the engine refuses the converted file: {first_line(error)}") from error
        operator = missing[1] or missing[2]
        raise UnsupportedError(
            f"the engine of 'tflite-cpu' has no kernel for '{operator}': "
            "replace it in the model or choose another target",
            (operator,),
        ) from error


def in_precision(
    data: bytes, task: ConversionTask, batch: int, tensorwise: Sequence[str] = ("BATCH_MATMUL",)
) -> tuple[bytes, tuple[str, ...]]:
    """Return a float file in the precision, and by the scheme, that a task asks for, and notes on it.

    Raises:
        ConfigError: a pattern of operators to keep in float matches none.
        DataError: static int8 without calibration data.
        ConversionError: the quantizer failed.
    """
    if task.precision == "fp32":
        return data, ()
    kept = (*kept_operators(data, task.options.keep_float), *_float_stages(data, task, batch))
    if task.precision == "fp16":
        with quiet_litert():
            return with_half_weights(data, kept), ()
    if task.options.int8_scheme == "dynamic":
        with quiet_litert():
            return dynamically_quantized(data, kept), ()
    if task.calibration is None:
        raise DataError("static int8 needs calibration data: give typical samples with --calibration")
    samples = CalibrationSamples(task.calibration, task.source.inputs, batch)
    with quiet_litert():
        made, strays = quantized(data, samples, kept, tensorwise=tensorwise, ranges=task.options.ranges)
    return made, notes_on_strays(strays, task.options.ranges)


def _float_stages(data: bytes, task: ConversionTask, batch: int) -> tuple[str, ...]:
    """Return the operators of the stages of a float file that are to stay float."""
    if "fp32" not in task.options.stage_precisions:
        return ()
    facts = tflite_file.read_facts(data)
    takes = _ports(task.source.inputs, facts.inputs, side="input", argument_of=argument)
    adds = _ports(task.source.outputs, facts.outputs, side="output", argument_of=output_argument)
    return float_tensors(task, data, takes, adds, batch)


def write_and_read_back(
    data: bytes,
    task: ConversionTask,
    batch: int,
    versions: dict[str, str],
    *,
    tensorwise: Sequence[str] = ("BATCH_MATMUL",),
) -> StageFiles:
    """Bring a float file into the task's precision, write it and describe what it says.

    Args:
        data: A float file whose signature has the names that litert-torch gives.
        task: The task.
        batch: Its batch size.
        versions: Tools that made it.
        tensorwise: Operators whose weights get one scale in static int8, not one a channel.

    Raises:
        ConversionError: the file is not what was asked for.
        DataError: static int8 without calibration data.
    """
    path = task.into / _FILE
    made, notes = in_precision(data, task, batch, tensorwise)
    path.write_bytes(made)
    facts = tflite_file.read_facts(path.read_bytes())
    takes = _ports(task.source.inputs, facts.inputs, side="input", argument_of=argument)
    adds = _ports(task.source.outputs, facts.outputs, side="output", argument_of=output_argument)
    if task.precision == "int8":
        mixed = (
            task.options.keep_float or task.options.int8_scheme == "dynamic" or "fp32" in task.options.stage_precisions
        )
        _check_int8(facts, () if mixed else (*takes, *adds))
    if task.precision == "int8" and task.options.int8_scheme == "static":
        for port in takes:
            check_coverage(port, np.asarray((task.calibration or {})[port.name]))
    quantizer = {"ai-edge-quantizer": version("ai-edge-quantizer")} if task.precision != "fp32" else {}
    return StageFiles(
        file=_FILE,
        takes=takes,
        adds=adds,
        static_batch=batch,
        operators=facts.operators,
        versions={**versions, **quantizer},
        notes=(*notes_on(task, batch), *notes),
        scheme=task.options.int8_scheme if task.precision == "int8" else None,
    )


def notes_on(task: ConversionTask, batch: int) -> tuple[str, ...]:
    """Return what a reader of the manifest has to know of any TFLite file we make."""
    notes = [f"TFLite files have one batch size, here {batch}; larger batches run one after another"]
    if task.precision == "fp16":
        notes.append("weights are stored in float16, half the bytes; the engine computes in float32, not faster")
    return tuple(notes)


def _ports(
    specs: tuple[TensorSpec, ...],
    tensors: tuple[TfliteTensor, ...],
    *,
    side: str,
    argument_of: Callable[[int], str],
) -> tuple[Port, ...]:
    """Give the file's tensors the source's names, by their number in the signature.

    Raises:
        ConversionError: a tensor is missing, or has another shape than the source's.
    """
    if len(tensors) != len(specs):
        raise ConversionError(f"the file has {len(tensors)} {side}s where the source has {len(specs)}")
    by_argument = {tensor.argument: tensor for tensor in tensors}
    ports = []
    for index, spec in enumerate(specs):
        tensor = by_argument.get(argument_of(index))
        if tensor is None:
            raise ConversionError(
                f"the file's signature has no {side} '{argument_of(index)}': it has {list(by_argument)}"
            )
        _check_shape(spec, tensor, side)
        ports.append(
            Port(
                name=spec.name,
                engine_name=tensor.name,
                shape=tensor.shape,
                dtype=tensor.dtype,
                quantization=tensor.quantization,
            )
        )
    return tuple(ports)


def _check_shape(spec: TensorSpec, tensor: TfliteTensor, side: str) -> None:
    fits = len(spec.shape) == len(tensor.shape) and all(
        isinstance(size, str) or size == made for size, made in zip(spec.shape, tensor.shape, strict=True)
    )
    if not fits:
        raise ConversionError(
            f"{side} '{spec.name}' has shape {tensor.shape} in the file where the source has {spec.shape}"
        )


def _check_int8(facts: TfliteFacts, integer_ports: tuple[Port, ...]) -> None:
    """Refuse a file that is int8 by name only, or that has floats where integers were to be."""
    left_float = [port.name for port in integer_ports if port.dtype.startswith("float")]
    if left_float:
        raise ConversionError(f"int8 was asked for, but the file keeps {left_float} in floating point")
    operators = facts.operators
    if operators.total and len(operators.float_operators) == operators.total:
        raise ConversionError(
            "int8 was asked for, but every operator of the file computes in floating point: nothing in this model "
            "can be quantized so"
        )


def check_coverage(port: Port, samples: Array) -> None:
    """Refuse a quantized input whose range in the file cuts off calibration data: that data had no effect.

    Raises:
        ConversionError: values of the data lie more than one step outside the range.
    """
    if port.quantization is None:
        return
    limits, scale = np.iinfo(port.dtype), port.quantization.scale
    low = scale * (limits.min - port.quantization.zero_point)
    high = scale * (limits.max - port.quantization.zero_point)
    seen_low, seen_high = float(samples.min()), float(samples.max())
    # One step of play: the zero point is rounded.
    if seen_low < low - scale or seen_high > high + scale:
        raise ConversionError(
            f"the calibration data had no effect: input '{port.name}' covers {low:g}..{high:g} in the file, "
            f"but the data reaches {seen_low:g}..{seen_high:g}"
        )


_: type[Converter] = ToTflite
