"""Static int8 for a float .tflite file: true minimum and maximum of every tensor, then ai-edge-quantizer."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from typing import Any

import numpy as np

from ipj_edge.errors import ConversionError, DataError, first_line
from ipj_edge.plugins import needs
from ipj_edge.protocols import Array
from ipj_edge.values import TensorSpec, TrainedRanges
from ipj_edge_converters.quantization.trained_ranges import find_ranges
from ipj_edge_converters.tflite import file as tflite_file
from ipj_edge_converters.tflite.quantize.biases import restore_biases
from ipj_edge_converters.tflite.quantize.recipes import apply_recipe, leave_out

_log = logging.getLogger(__name__)


class CalibrationSamples:
    """The calibration arrays cut into the feeds of a file with a fixed batch size, one at a time.

    ai-edge-quantizer walks over its data twice, so this can be iterated more than once. Where the samples do not
    fill the last batch, it is filled by repeating the last sample, which no minimum or maximum notices.
    """

    def __init__(self, arrays: Mapping[str, Array], inputs: Sequence[TensorSpec], batch: int) -> None:
        self._arrays, self._inputs, self._batch = arrays, inputs, batch
        counts = {len(arrays[spec.name]) for spec in inputs if spec.batch_axis is not None}
        if len(counts) > 1:
            raise DataError(f"the calibration arrays hold different numbers of samples: {sorted(counts)}")
        self._samples = counts.pop() if counts else 1
        if self._samples == 0:
            raise DataError("the calibration set is empty: give some tens of typical samples")

    def __iter__(self) -> Iterator[dict[str, Array]]:
        """Yield one feed after another, by argument of the signature."""
        for start in range(0, self._samples, self._batch):
            rows = np.minimum(np.arange(start, start + self._batch), self._samples - 1)
            yield {argument(i): self._feed(spec, rows) for i, spec in enumerate(self._inputs)}

    def _feed(self, spec: TensorSpec, rows: Array) -> Array:
        array = np.asarray(self._arrays[spec.name], dtype=spec.dtype)
        if spec.batch_axis is None:
            return array
        return np.ascontiguousarray(np.moveaxis(array[rows], 0, spec.batch_axis))


def argument(index: int) -> str:
    """Return the name litert-torch gives an input in the signature."""
    return f"args_{index}"


def output_argument(index: int) -> str:
    """Return the name litert-torch gives an output in the signature."""
    return f"output_{index}"


def quantized(
    data: bytes,
    samples: CalibrationSamples,
    kept: Sequence[str] = (),
    *,
    tensorwise: Sequence[str] = ("BATCH_MATMUL",),
    ranges: TrainedRanges | None = None,
) -> tuple[bytes, tuple[str, ...]]:
    """Give a file int8 weights and activations, and int8 inputs and outputs in place of float ones.

    Args:
        data: A float file with one signature.
        samples: Feeds to take the ranges from.
        kept: Scopes of operators to leave in floating point, see `kept_operators`.
        tensorwise: Operators whose weights get one scale, not one a channel.
        ranges: Trained ranges to use where a tensor has one.

    Returns:
        The quantized file, and the names of the trained ranges that match none of its tensors.

    Raises:
        ConversionError: the quantizer failed on this model.
    """
    recipe = _recipe(tensorwise)
    leave_out(recipe, kept)
    statistics = _true_min_max(data, samples, recipe)
    strays = () if ranges is None else _set_trained(statistics, ranges)
    # Biases that int32 cannot hold overflow here, and are mended below.
    with np.errstate(invalid="ignore"):
        made = apply_recipe(data, recipe, statistics)
    before, model = tflite_file.parse(data), tflite_file.parse(made)
    _restore_outputs(before, model)
    restore_biases(before, model)
    return tflite_file.pack(model), strays


def _set_trained(statistics: Any, ranges: TrainedRanges) -> tuple[str, ...]:
    """Put trained ranges in the place of those seen, for every tensor that has one; return those that match none."""
    seen = {
        name: (float(found["min"].min()), float(found["max"].max()))
        for name, found in statistics.items()
        if "min" in found and found["min"].size == 1
    }
    found = find_ranges(ranges, seen)
    for name, (low, high) in found.ends.items():
        statistics[name]["min"] = np.full_like(statistics[name]["min"], low)
        statistics[name]["max"] = np.full_like(statistics[name]["max"], high)
    return found.strays


def _recipe(tensorwise: Sequence[str]) -> Any:
    """Return int8 for all operators, per channel except where a kernel would ignore the other channels' scales.

    BATCH_MATMUL takes one scale only: per-channel weights made it answer a constant (reproduced with
    ai-edge-litert 2.3.0; tflite-micro pull request 2602 is of the same kind).
    """
    with needs("convert"):
        from ai_edge_quantizer import qtyping, recipe, recipe_manager
    manager = recipe_manager.RecipeManager()
    manager.load_quantization_recipe(recipe.static_wi8_ai8())
    for operator in tensorwise:
        manager.add_static_config(
            regex=".*",
            operation_name=qtyping.TFLOperationName(operator),
            activation_num_bits=8,
            weight_num_bits=8,
            weight_granularity=qtyping.QuantGranularity.TENSORWISE,
        )
    return manager


def _true_min_max(data: bytes, samples: CalibrationSamples, recipe: Any) -> Any:
    """Run the float file over the samples and return the smallest and largest value of every tensor.

    ai-edge-quantizer's default is a moving average, which depends on the order of the samples and clips tails.
    """
    from ai_edge_quantizer import calibrator
    from ai_edge_quantizer.utils import qsv_utils

    # One thread: the same ranges on every machine.
    calibration = calibrator.Calibrator(data, num_threads=1, qsv_update_func=qsv_utils.min_max_update)
    progress = io.StringIO()
    try:
        # Its progress bar cannot be turned off.
        with redirect_stderr(progress):
            calibration.calibrate({_signature_key(data): samples}, recipe)
    except (ValueError, RuntimeError) as error:
        raise ConversionError(f"calibration failed: {first_line(error)}") from error
    _log.debug("calibration: %s", progress.getvalue())
    return calibration.get_model_qsvs()


def _signature_key(data: bytes) -> str:
    return tflite_file.text(tflite_file.only_signature(tflite_file.parse(data)).signatureKey)


def _restore_outputs(before: Any, after: Any) -> None:
    """Point the signature at the outputs of the graph again, and take outputs before a DEQUANTIZE, not behind it.

    Where an output also feeds an operator that stays float, ai-edge-quantizer 0.10 makes the float copy the
    output and leaves the signature on a tensor that is none. The order of the outputs does not change.
    """
    signature, graph = tflite_file.only_signature(after), _main_graph(after)
    codes = tflite_file.operator_names(after)
    source_of = {
        operator.outputs[0]: operator.inputs[0]
        for operator in graph.operators
        if codes[operator.opcodeIndex] == "DEQUANTIZE"
    }
    outputs = [source_of.get(index, index) for index in graph.outputs]
    earlier, places = tflite_file.only_signature(before), list(_main_graph(before).outputs)
    graph.outputs = outputs
    for old, new in zip(earlier.outputs, signature.outputs, strict=True):
        new.tensorIndex = outputs[places.index(old.tensorIndex)]


def _main_graph(model: Any) -> Any:
    return model.subgraphs[tflite_file.only_signature(model).subgraphIndex]
