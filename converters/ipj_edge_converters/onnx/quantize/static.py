"""Static int8 for ONNX, by onnxruntime's own quantizer, in QDQ form.

The choices, and what they rest on:

* QDQ, never QOperator: on x86 onnxruntime ran the QOperator form of the same weights four times slower than fp32.
* Weights int8, symmetric, one scale a channel. Activations uint8 with a zero point: on ResNet-20
  (onnxruntime 1.32, VNNI) int8 activations, symmetric or not, left half of the convolutions in float and took
  five times the CPU time at 0.912 accuracy, against 0.913 with uint8 (fp32: 0.915).
* Ranges are the true smallest and largest values over the calibration samples.
* Batch normalisation and constants are folded first: the engine never makes the tensors between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from ipj_edge.errors import ConversionError, DataError, UnsupportedError, typed_line
from ipj_edge.plugins import needs
from ipj_edge.protocols import Array, ConversionTask
from ipj_edge.values import TensorSpec, TrainedRanges
from ipj_edge_converters.onnx.files import load_onnx
from ipj_edge_converters.onnx.graphs import opset_of
from ipj_edge_converters.onnx.quantize.biases import flatten_biases
from ipj_edge_converters.onnx.quantize.float_nodes import hold_in_float
from ipj_edge_converters.onnx.quantize.float_stages import float_nodes
from ipj_edge_converters.onnx.runtime import as_engine_runs
from ipj_edge_converters.quantization.instruction_sets import has_exact_dot_products
from ipj_edge_converters.quantization.keep_float import NamedOperator, matching
from ipj_edge_converters.quantization.trained_ranges import FoundRanges, find_ranges
from ipj_edge_converters.quiet import quiet
from ipj_edge_converters.sources.feeds import static_batch

# DequantizeLinear has an axis, which scales per channel need, since opset 13.
_MINIMUM_OPSET = 13

# Every activation of a batch may be alive at once while calibrating: feed at most this much input at a time.
_BATCH_BYTES = 1 << 20
_LARGEST_BATCH = 32


class Choices(NamedTuple):
    """What of a static quantization is chosen.

    Attributes:
        reduce_range: Use 7 bits for weights, which CPUs without 8-bit dot products need to be exact.
        keep_float: Patterns of operators to leave in floating point.
        float_nodes: Names of further nodes to leave in floating point; those that folding took away are ignored.
        ranges: Trained ranges to use where an activation has one.
        symmetric: Activations int8 around zero and biases in float, the only form TensorRT computes in integers.
    """

    reduce_range: bool = False
    keep_float: tuple[str, ...] = ()
    float_nodes: frozenset[str] = frozenset()
    symmetric: bool = False
    ranges: TrainedRanges | None = None


def choices_of(task: ConversionTask) -> Choices:
    """Return what a task chooses of a static quantization for CPUs.

    Raises:
        ConfigError: the instruction set is not known.
    """
    return Choices(
        reduce_range=not has_exact_dot_products(task.options.isa),
        keep_float=task.options.keep_float,
        float_nodes=float_nodes(task),
        ranges=task.options.ranges,
    )


def quantize(
    source: Path, inputs: tuple[TensorSpec, ...], calibration: Mapping[str, Array], choices: Choices
) -> tuple[Any, tuple[str, ...]]:
    """Quantize an ONNX file.

    Args:
        source: A float ONNX file, weights inline.
        inputs: Its inputs.
        calibration: Arrays by input name, first axis = samples.
        choices: How.

    Returns:
        The quantized model, and the names of the trained ranges that match none of its tensors.

    Raises:
        ConfigError: a pattern matches no operator.
        DataError: an input has no calibration data.
        UnsupportedError: the model is too old for the quantizer and cannot be brought up to date.
        ConversionError: the quantizer failed.
    """
    with needs("convert"):
        import onnx
        from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
    check_calibration(inputs, calibration)
    with TemporaryDirectory(prefix="ipj-edge-") as folder, quiet("root", "onnxruntime"):
        prepared, written = (Path(folder) / f"{step}.onnx" for step in ("prepared", "int8"))
        ready = prepare(load_onnx(source), source.name)
        excluded = kept_nodes(ready, choices.keep_float)
        excluded += [node.name for node in ready.graph.node if node.name in choices.float_nodes]
        onnx.save_model(ready, str(prepared))
        try:
            symmetric = {"ActivationSymmetric": True, "QuantizeBias": False}
            options: dict[str, Any] = dict(symmetric) if choices.symmetric else {}
            strays: tuple[str, ...] = ()
            if choices.ranges is not None:
                ends, strays = _trained(prepared, inputs, calibration, choices.ranges)
                options["TensorQuantOverrides"] = _overrides(ends)
            quantize_static(
                prepared,
                written,
                _Reader(calibration_batches(inputs, calibration)),
                quant_format=QuantFormat.QDQ,
                per_channel=True,
                reduce_range=choices.reduce_range,
                activation_type=QuantType.QInt8 if choices.symmetric else QuantType.QUInt8,
                nodes_to_exclude=excluded,
                extra_options=options,
                weight_type=QuantType.QInt8,
                calibrate_method=CalibrationMethod.MinMax,
            )
        except Exception as error:
            raise ConversionError(f"onnxruntime's quantizer failed: {typed_line(error)}") from error
        model = load_onnx(written)
        hold_in_float(model, excluded)
        return model, strays


def prepare(model: Any, file: str) -> Any:
    """Do what the quantizer asks for beforehand: fold constants and normalisations, infer shapes, plain biases.

    Every node gets a name, by which it can be left out.

    Its own ``quant_pre_process`` does the same and goes on with the unfolded model when folding fails.
    """
    with needs("convert"):
        import onnx
        from onnxruntime.quantization.quant_utils import add_pre_process_metadata
    folded = as_engine_runs(_up_to_date(model), file, level="basic")
    flatten_biases(folded)
    for index, node in enumerate(folded.graph.node):
        node.name = node.name or f"{node.op_type}_{index}"
    inferred = onnx.shape_inference.infer_shapes(folded)
    add_pre_process_metadata(inferred)
    return inferred


def _trained(
    model: Path, inputs: tuple[TensorSpec, ...], calibration: Mapping[str, Array], ranges: TrainedRanges
) -> FoundRanges:
    """Find the trained ranges by what passes in the float model."""
    from onnxruntime.quantization import CalibrationMethod
    from onnxruntime.quantization.calibrate import create_calibrator

    watched = model.with_suffix(".watched.onnx")
    calibrator = create_calibrator(model, augmented_model_path=str(watched), calibrate_method=CalibrationMethod.MinMax)
    calibrator.collect_data(_Reader(calibration_batches(inputs, calibration)))
    seen = {name: _ends(found.range_value) for name, found in calibrator.compute_data().items()}
    return find_ranges(ranges, seen)


def _overrides(ends: Mapping[str, tuple[float, float]]) -> dict[str, list[dict[str, Any]]]:
    """Return onnxruntime's overrides for the activations that have a trained range."""
    return {name: [{"rmin": np.float32(low), "rmax": np.float32(high)}] for name, (low, high) in ends.items()}


def _ends(pair: Sequence[Any]) -> tuple[float, float]:
    low, high = (float(np.asarray(end).item()) for end in pair)
    return low, high


def kept_nodes(model: Any, patterns: tuple[str, ...]) -> list[str]:
    """Return the names of the nodes of a prepared model that patterns keep in floating point.

    Raises:
        ConfigError: a pattern matches none.
    """
    return [
        each.name for each in matching(patterns, [NamedOperator(node.op_type, node.name) for node in model.graph.node])
    ]


def check_calibration(inputs: Sequence[TensorSpec], calibration: Mapping[str, Array]) -> None:
    """Refuse calibration data that does not cover the inputs.

    Raises:
        DataError: an input has no data, or the samples do not fill a static batch.
    """
    missing = [spec.name for spec in inputs if spec.name not in calibration]
    if missing:
        raise DataError(f"no calibration data for the input {', '.join(missing)}")
    static, samples = static_batch(inputs), _samples(inputs, calibration)
    if static is not None and samples % static:
        raise DataError(f"the model takes {static} samples at a time; {samples} calibration samples do not fill that")


def calibration_batches(inputs: Sequence[TensorSpec], calibration: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
    """Cut calibration arrays into feeds, in order: batches where the batch is dynamic, else of its static size.

    An input without a batch axis has a value a sample too; where these differ, samples are fed one by one.
    """
    size = static_batch(inputs) or _dynamic_size(inputs, calibration)
    for start in range(0, _samples(inputs, calibration), size):
        yield {spec.name: _cut(spec, calibration[spec.name], start, start + size) for spec in inputs}


def _samples(inputs: Sequence[TensorSpec], calibration: Mapping[str, Array]) -> int:
    return min(
        len(calibration[spec.name]) for spec in inputs if spec.batch_axis is not None or _is_listed(spec, calibration)
    )


def _is_listed(spec: TensorSpec, calibration: Mapping[str, Array]) -> bool:
    """Say whether an input's data has an axis for the samples; a setting may be given once for all."""
    return calibration[spec.name].ndim > len(spec.shape) - (spec.batch_axis is not None)


def _dynamic_size(inputs: Sequence[TensorSpec], calibration: Mapping[str, Array]) -> int:
    settings = [calibration[spec.name] for spec in inputs if spec.batch_axis is None and _is_listed(spec, calibration)]
    if any((values != values[:1]).any() for values in settings):
        return 1
    sample_bytes = sum(calibration[spec.name][:1].nbytes for spec in inputs if spec.batch_axis is not None)
    return int(np.clip(_BATCH_BYTES // max(1, sample_bytes), 1, _LARGEST_BATCH))


def _cut(spec: TensorSpec, array: Array, start: int, stop: int) -> Array:
    if spec.batch_axis is None:
        return np.asarray(array[start] if array.ndim > len(spec.shape) else array)
    return np.ascontiguousarray(np.moveaxis(array[start:stop], 0, spec.batch_axis))


class _Reader:
    """Hands feeds to onnxruntime's calibrator, one at a time, then None."""

    def __init__(self, feeds: Iterator[dict[str, Array]]) -> None:
        self._feeds = feeds

    def get_next(self) -> dict[str, Array] | None:
        return next(self._feeds, None)


def _up_to_date(model: Any) -> Any:
    """Bring a model to an opset that can express scales per channel."""
    with needs("convert"):
        from onnx import version_converter
    opset = opset_of(model)
    if opset >= _MINIMUM_OPSET:
        return model
    try:
        return version_converter.convert_version(model, _MINIMUM_OPSET)
    except RuntimeError as error:
        raise UnsupportedError(
            f"int8 needs opset {_MINIMUM_OPSET}, and this model of opset {opset} cannot be brought there: "
            f"{typed_line(error)}"
        ) from error
