"""Calibration and test data: ``.npz`` files, folders of images, or ``module:callable``, as arrays by input name.

The first axis of every array is the samples; values are in the source's layout and range. An input without a
batch axis (a scalar, a setting) is given once and serves every sample.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from ipj_edge.errors import DataError
from ipj_edge.protocols import Array
from ipj_edge.samples.reading import read
from ipj_edge.values import Preprocessing, TensorSpec


class Samples(msgspec.Struct, frozen=True, kw_only=True):
    """Arrays by input name, with labels where known.

    Attributes:
        arrays: One array per input; first axis = samples where the input has a batch axis.
        labels: Integer labels of shape (n,), or None.
        count: Number of samples n.
    """

    arrays: dict[str, Any]
    labels: Any
    count: int

    def rows(self, specs: Sequence[TensorSpec], start: int, stop: int) -> dict[str, Array]:
        """Return samples start..stop as one batch."""
        return {
            spec.name: self.arrays[spec.name][start:stop] if spec.batch_axis is not None else self.arrays[spec.name]
            for spec in specs
        }


def load_samples(
    location: str,
    specs: Sequence[TensorSpec],
    preprocessing: Mapping[str, Preprocessing] | None = None,
    classes: Sequence[str] = (),
) -> Samples:
    """Load data and fit it to a model's inputs.

    Args:
        location: ``.npz`` file, folder with one sub-folder of images a class, or ``module:callable``.
        specs: The model's inputs.
        preprocessing: How images become inputs; needed for a folder of images.
        classes: The model's class names in output order, by which the sub-folders of a folder of images are labelled.

    Raises:
        DataError: missing, unreadable, or not fitting the inputs; says what was expected.
    """
    arrays, labels = read(location, specs, preprocessing or {}, classes)
    return fit(arrays, labels, specs, location)


def arrays_given(locations: Sequence[str | None]) -> dict[str, Array]:
    """Return the arrays of ``.npz`` files by name, before it is known what a model takes; the first file counts.

    Raises:
        DataError: missing or unreadable.
    """
    arrays: dict[str, Array] = {}
    for location in locations:
        if location is not None and location.endswith(".npz"):
            found, _ = read(location, (), {}, ())
            arrays = {**found, **arrays}
    return arrays


def fit(arrays: Mapping[str, Array], labels: Array | None, specs: Sequence[TensorSpec], where: str) -> Samples:
    """Check arrays against a model's inputs: names, rank, shape, dtype, number of samples.

    Raises:
        DataError: states what was expected and what came.
    """
    named = dict(arrays)
    if len(specs) == 1 and set(named) == {"x"}:
        named = {specs[0].name: named["x"]}
    expected = {spec.name for spec in specs}
    if set(named) != expected:
        raise DataError(
            f"{where}: expected arrays named {', '.join(sorted(expected))}; got {', '.join(sorted(named)) or 'none'}"
        )
    counts = {spec.name: _check_array(named[spec.name], spec, where) for spec in specs}
    sizes = {count for count in counts.values() if count is not None}
    if len(sizes) > 1:
        raise DataError(f"{where}: inputs differ in their number of samples: {counts}")
    count = sizes.pop() if sizes else 1
    if count == 0:
        raise DataError(f"{where}: holds no samples")
    if labels is not None:
        _check_labels(labels, count, where)
    return Samples(arrays=named, labels=labels, count=count)


def digest(samples: Samples) -> str:
    """Return a sha256 over names, dtypes, shapes and bytes of the arrays: the same data gives the same digest."""
    state = hashlib.sha256()
    for name in sorted(samples.arrays):
        array = np.ascontiguousarray(samples.arrays[name])
        state.update(f"{name}:{array.dtype.str}:{array.shape}:".encode())
        state.update(array.tobytes())
    return state.hexdigest()


def _check_labels(labels: Array, count: int, where: str) -> None:
    if labels.dtype.kind not in "biuf" or labels.ndim == 0:
        raise DataError(
            f"{where}: labels are {labels.dtype} of shape {labels.shape}; expected one class number a sample"
        )
    if len(labels) != count:
        raise DataError(f"{where}: {len(labels)} labels for {count} samples")


def _check_array(array: Array, spec: TensorSpec, where: str) -> int | None:
    """Return the number of samples in an array, or None for an input without a batch axis."""
    if array.dtype.name != spec.dtype:
        raise DataError(f"{where}: '{spec.name}' has dtype {array.dtype.name}, expected {spec.dtype}")
    fits = array.ndim == len(spec.shape) and all(
        isinstance(want, str) or axis == spec.batch_axis or have == want
        for axis, (have, want) in enumerate(zip(array.shape, spec.shape, strict=True))
    )
    if not fits:
        raise DataError(f"{where}: '{spec.name}' has shape {array.shape}, expected {shape_text(spec)}")
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise DataError(f"{where}: '{spec.name}' holds NaN")
    return None if spec.batch_axis is None else int(array.shape[spec.batch_axis])


def shape_text(spec: TensorSpec) -> str:
    """Write a shape with the batch axis as ``N``: ``(N, 3, 32, 32)``."""
    sizes = ["N" if axis == spec.batch_axis else str(size) for axis, size in enumerate(spec.shape)]
    return f"({', '.join(sizes)})"
