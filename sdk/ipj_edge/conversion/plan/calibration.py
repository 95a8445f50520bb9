"""Calibration sets: what may set the ranges of a static quantization. There is no default and no random data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ipj_edge.bundles.manifest import CalibrationRecord, InputRange
from ipj_edge.errors import DataError
from ipj_edge.protocols import Array
from ipj_edge.samples.data import Samples, digest
from ipj_edge.values import TensorSpec


def check_calibration(samples: Samples, specs: Sequence[TensorSpec], where: str) -> None:
    """Refuse a calibration set that cannot set ranges: infinity, all-constant, outside the declared range.

    Whole numbers may be constant: they are indices and masks, which are looked up and not scaled.

    Raises:
        DataError: names the input and what is wrong with it.
    """
    for spec in specs:
        array = samples.arrays[spec.name]
        if not np.isfinite(array).all():
            raise DataError(f"{where}: '{spec.name}' holds infinity")
        scaled = spec.batch_axis is not None and array.dtype.kind == "f"
        if scaled and array.size > 1 and array.min() == array.max():
            raise DataError(
                f"{where}: '{spec.name}' is {array.flat[0]} everywhere; calibrate on real inputs of the model"
            )
        _check_declared(array, spec, where)


def check_whole_numbers(samples: Samples, specs: Sequence[TensorSpec], where: str) -> None:
    """Refuse data whose whole numbers lie outside what an input declares: a bundle would refuse them too.

    Raises:
        DataError: names the input, its range and what came.
    """
    for spec in specs:
        if samples.arrays[spec.name].dtype.kind in "iu":
            _check_declared(samples.arrays[spec.name], spec, where)


def _check_declared(array: Array, spec: TensorSpec, where: str) -> None:
    declared = spec.value_range
    if declared is not None and array.size and (array.min() < declared[0] or array.max() > declared[1]):
        digits = "g" if array.dtype.kind == "f" else "d"
        raise DataError(
            f"{where}: '{spec.name}' runs from {array.min():{digits}} to {array.max():{digits}}, "
            f"declared is {declared[0]:.15g} to {declared[1]:.15g}"
        )


def record_calibration(samples: Samples) -> CalibrationRecord:
    """Return what the manifest says of a calibration set."""
    return CalibrationRecord(
        sha256=digest(samples),
        samples=samples.count,
        inputs={
            name: InputRange(low=float(array.min()), high=float(array.max()))
            for name, array in sorted(samples.arrays.items())
        },
    )


def range_warnings(calibration: Samples, data: Samples) -> tuple[str, ...]:
    """Warn of inputs whose calibrated span and evaluation span differ more than fourfold."""
    warnings = []
    for name, array in sorted(calibration.arrays.items()):
        span, other = float(np.ptp(array)), float(np.ptp(data.arrays[name]))
        if min(span, other) > 0 and max(span, other) / min(span, other) > 4:
            warnings.append(f"'{name}' spans {span:g} in the calibration set and {other:g} in --data: same scaling?")
    return tuple(warnings)
