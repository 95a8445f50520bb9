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

from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ipj_edge.errors import ConversionError, DataError, UnsupportedError
from ipj_edge.plugins import needs
from ipj_edge.protocols import Array
from ipj_edge.values import TensorSpec
from ipj_edge_converters.onnx_graphs import opset_of
from ipj_edge_converters.quiet import first_line, quiet
from ipj_edge_converters.sources.feeds import static_batch

# DequantizeLinear has an axis, which scales per channel need, since opset 13.
_MINIMUM_OPSET = 13

# Calibration keeps every activation of one batch alive for a while: at most this much input at a time.
_BATCH_BYTES = 1 << 20
_LARGEST_BATCH = 32


def quantize(
    source: Path, inputs: tuple[TensorSpec, ...], calibration: Mapping[str, Array], *, reduce_range: bool
) -> Any:
    """Quantize an ONNX file and return the model.

    Args:
        source: A float ONNX file, weights inline.
        inputs: Its inputs.
        calibration: Arrays by input name, first axis = samples.
        reduce_range: Use 7 bits for weights, which CPUs without 8-bit dot products need to be exact.

    Raises:
        DataError: an input has no calibration data.
        UnsupportedError: the model is too old for the quantizer and cannot be brought up to date.
        ConversionError: the quantizer failed.
    """
    with needs("convert"):
        import onnx
        from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
        from onnxruntime.quantization.shape_inference import quant_pre_process
    batches = list(calibration_batches(inputs, calibration))
    with TemporaryDirectory(prefix="ipj-edge-") as folder, quiet("root", "onnxruntime"):
        current, prepared, written = (Path(folder) / f"{step}.onnx" for step in ("current", "prepared", "int8"))
        onnx.save_model(_up_to_date(onnx.load_model(str(source))), str(current))
        try:
            quant_pre_process(current, prepared, skip_symbolic_shape=True)
            quantize_static(
                prepared,
                written,
                _Reader(batches),
                quant_format=QuantFormat.QDQ,
                per_channel=True,
                reduce_range=reduce_range,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                calibrate_method=CalibrationMethod.MinMax,
            )
        except Exception as error:
            raise ConversionError(f"onnxruntime's quantizer failed: {first_line(error)}") from error
        return onnx.load_model(str(written))


def calibration_batches(
    inputs: tuple[TensorSpec, ...], calibration: Mapping[str, Array]
) -> Iterator[dict[str, Array]]:
    """Cut calibration arrays into feeds, in order: batches where the batch is dynamic, else of its static size.

    An input without a batch axis is fed its first sample's value with every batch.

    Raises:
        DataError: an input has no calibration data, or the samples do not fill a static batch.
    """
    missing = [spec.name for spec in inputs if spec.name not in calibration]
    if missing:
        raise DataError(f"no calibration data for the input {', '.join(missing)}")
    batched = [spec for spec in inputs if spec.batch_axis is not None]
    samples = min((len(calibration[spec.name]) for spec in batched), default=1)
    size = _batch_size(batched, calibration)
    if samples % size and static_batch(batched):
        raise DataError(
            f"the model takes {size} samples at a time; {samples} calibration samples do not fill that"
        )
    for start in range(0, samples, size):
        yield {spec.name: _cut(spec, calibration[spec.name], start, start + size) for spec in inputs}


def _cut(spec: TensorSpec, array: Array, start: int, stop: int) -> Array:
    if spec.batch_axis is None:
        return np.ascontiguousarray(array if array.ndim == len(spec.shape) else array[0])
    return np.ascontiguousarray(np.moveaxis(array[start:stop], 0, spec.batch_axis))


def _batch_size(batched: list[TensorSpec], calibration: Mapping[str, Array]) -> int:
    sample_bytes = sum(calibration[spec.name][:1].nbytes for spec in batched)
    fitting = _BATCH_BYTES // max(1, sample_bytes)
    return static_batch(batched) or int(np.clip(fitting, 1, _LARGEST_BATCH))


class _Reader:
    """Hands feeds to onnxruntime's calibrator, one at a time, then None."""

    def __init__(self, feeds: list[dict[str, Array]]) -> None:
        self._feeds = iter(feeds)

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
            f"{first_line(error)}"
        ) from error
