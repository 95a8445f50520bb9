"""ONNX to OpenVINO IR: float, or static int8 with NNCF. An ONNX file that is already int8 keeps its own scales."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ipj_edge.bundles.manifest import OperatorCount
from ipj_edge.errors import ConfigError, ConversionError, TargetUnavailableError
from ipj_edge.protocols import ConversionTask, Converter, StageFiles
from ipj_edge.values import Port, Precision, Scheme, TensorSpec
from ipj_edge_converters.onnx.files import load_onnx
from ipj_edge_converters.openvino.file import XML_NAME, import_openvino, write
from ipj_edge_converters.openvino.onnx_reading import onnx_names, read_onnx
from ipj_edge_converters.openvino.operators import count_operators
from ipj_edge_converters.openvino.quantize import quantize
from ipj_edge_converters.openvino.stages import stage_and_convert
from ipj_edge_converters.quantization.instruction_sets import assumed_by_quantized, has_exact_dot_products
from ipj_edge_converters.quantization.keep_float import NamedOperator, matching
from ipj_edge_converters.quantization.trained_ranges import notes_on_strays
from ipj_edge_converters.sources.forms import onnx_path

_NO_OPERATORS = frozenset(("Constant", "Const", "Parameter", "Result"))


_BF16_NOTE = "the file holds float32 weights; the engine computes it in bfloat16"


class ToOpenvino:
    """Converts ONNX to OpenVINO IR (``model.xml`` and ``model.bin``).

    A bf16 bundle holds the float32 file: the target has the engine compute it in bfloat16, which rounds weights as
    it loads them.
    """

    name = "to-openvino"
    form = "onnx"
    targets: tuple[str, ...] = ("openvino-cpu",)
    precisions: tuple[Precision, ...] = ("fp32", "bf16", "int8")
    schemes: tuple[Scheme, ...] = ("static",)

    def convert(self, task: ConversionTask) -> StageFiles:
        """Convert, write into ``task.into`` and read back what was written.

        Raises:
            TargetUnavailableError: another precision than that of an already quantized source was asked for.
            ConfigError: the instruction set is not known, operators are to be kept in float where that cannot be had,
                or a pattern matches none.
            UnsupportedError: openvino has no such operator; names it.
            ConversionError: the conversion failed, or what came out is not int8 where int8 was asked for.
        """
        _check_precision(task)
        if task.options.split_at:
            return stage_and_convert(task, self.convert)
        path = onnx_path(task.source)
        model, names = read_onnx(path), onnx_names(path)
        quantizing = task.precision == "int8" and task.source.precision != "int8"
        isa = _assumed(task, path)
        strays: tuple[str, ...] = ()
        if quantizing:
            model, kept = _kept_in_float(model, task, names)
            model, strays = quantize(
                model,
                task.calibration or {},
                task.source.inputs,
                full_range=isa == "vnni",
                kept=kept,
                ranges=task.options.ranges,
            )
        model.set_friendly_name(task.source.name)
        write(model, task.into, names)
        operators = count_operators(task.into / XML_NAME)
        if task.precision == "int8":
            _check_int8(operators)
        tools = ("openvino", "nncf") if quantizing else ("openvino",)
        return _stage_files(task, operators, isa, tools, notes_on_strays(strays, task.options.ranges))


def _assumed(task: ConversionTask, path: Path) -> str:
    """Return the instruction set that the file will assume: empty for float, or where a reduced range needs none."""
    if task.precision != "int8":
        return ""
    if task.source.precision == "int8":
        return assumed_by_quantized(load_onnx(path), task)
    return "vnni" if has_exact_dot_products(task.options.isa) else ""


def _check_precision(task: ConversionTask) -> None:
    if task.source.precision == "int8" and task.precision != "int8":
        raise TargetUnavailableError(
            f"'{task.source.file}' is already quantized to int8 and keeps its own scales; "
            f"{task.precision} cannot be had from it: ask for int8, or give the float model"
        )
    if task.precision == "bf16" and task.options.keep_float:
        raise ConfigError("--keep-float has no effect on bf16: openvino chooses the precision of a whole program")
    if task.precision == "int8" and task.source.precision != "int8" and not task.calibration:
        raise ConversionError("static int8 needs calibration data; there is no default")


def _kept_in_float(model: Any, task: ConversionTask, names: set[str]) -> tuple[Any, tuple[str, ...]]:
    """Return the model and the names of its layers that are to stay in float.

    The model is written and read once, so that layers have the names that `inspect` lists of a float bundle.
    """
    if not task.options.keep_float:
        return model, ()
    with TemporaryDirectory(prefix="ipj-edge-") as folder:
        write(model, Path(folder), names)
        model = import_openvino().Core().read_model(Path(folder) / XML_NAME)
        model = model.clone()
    layers = [
        NamedOperator(each.get_type_name(), each.get_friendly_name())
        for each in model.get_ordered_ops()
        if each.get_type_name() not in _NO_OPERATORS
    ]
    return model, tuple(each.name for each in matching(task.options.keep_float, layers))


def _check_int8(operators: OperatorCount) -> None:
    if len(operators.float_operators) >= operators.total:
        raise ConversionError(
            f"int8 was asked for, but all {operators.total} operators of the file compute in floating point; "
            "nothing in this model can be quantized: convert it to fp32"
        )


def _stage_files(
    task: ConversionTask, operators: OperatorCount, isa: str, tools: tuple[str, ...], notes: tuple[str, ...]
) -> StageFiles:
    openvino = import_openvino()
    saved = openvino.Core().read_model(task.into / XML_NAME)
    takes = tuple(_port(saved.input(spec.name), spec) for spec in task.source.inputs)
    adds = tuple(_port(saved.output(spec.name), spec) for spec in task.source.outputs)
    return StageFiles(
        file=XML_NAME,
        takes=takes,
        adds=adds,
        static_batch=_static_batch(task.source.inputs, takes),
        operators=operators,
        versions={name: version(name) for name in tools},
        isa=isa,
        scheme="static" if "nncf" in tools else None,
        notes=(*((_BF16_NOTE,) if task.precision == "bf16" else ()), *notes),
    )


def _port(engine_port: Any, spec: TensorSpec) -> Port:
    sizes = engine_port.get_partial_shape()
    if sizes.rank.is_dynamic or sizes.rank.get_length() != len(spec.shape):
        raise ConversionError(f"openvino sees '{spec.name}' as {sizes}, the source as {list(spec.shape)}")
    # A size that openvino could not work out is still known when the source states it.
    shape = tuple(
        stated if size.is_dynamic else int(size.get_length()) for size, stated in zip(sizes, spec.shape, strict=True)
    )
    return Port(
        name=spec.name, engine_name=spec.name, shape=shape, dtype=engine_port.get_element_type().to_dtype().name
    )


def _static_batch(inputs: tuple[TensorSpec, ...], takes: tuple[Port, ...]) -> int | None:
    sizes = {
        port.shape[spec.batch_axis] for spec, port in zip(inputs, takes, strict=True) if spec.batch_axis is not None
    }
    fixed = [size for size in sizes if isinstance(size, int)]
    return fixed[0] if fixed else None


_: type[Converter] = ToOpenvino
