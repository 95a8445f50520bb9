"""Calibration and test data: ``.npz`` files, folders of images, or ``module:callable``, as arrays by input name.

The first axis of every array is the samples; values are in the source's layout and range. An input without a
batch axis (a scalar, a setting) is given once and serves every sample.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ipj_edge.errors import DataError
from ipj_edge.preprocess import apply, read_image
from ipj_edge.protocols import Array
from ipj_edge.values import Preprocessing, TensorSpec

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")


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
    location: str, specs: Sequence[TensorSpec], preprocessing: Mapping[str, Preprocessing] | None = None
) -> Samples:
    """Load data and fit it to a model's inputs.

    Args:
        location: ``.npz`` file, folder with one sub-folder of images a class, or ``module:callable``.
        specs: The model's inputs.
        preprocessing: How images become inputs; needed for a folder of images.

    Raises:
        DataError: missing, unreadable, or not fitting the inputs; says what was expected.
    """
    arrays, labels = _read(location, specs, preprocessing or {})
    return fit(arrays, labels, specs, location)


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
    if labels is not None and len(labels) != count:
        raise DataError(f"{where}: {len(labels)} labels for {count} samples")
    return Samples(arrays=named, labels=labels, count=count)


def digest(samples: Samples) -> str:
    """Return a sha256 over names, dtypes, shapes and bytes of the arrays: the same data gives the same digest."""
    state = hashlib.sha256()
    for name in sorted(samples.arrays):
        array = np.ascontiguousarray(samples.arrays[name])
        state.update(f"{name}:{array.dtype.str}:{array.shape}:".encode())
        state.update(array.tobytes())
    return state.hexdigest()


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
    return None if spec.batch_axis is None else int(array.shape[spec.batch_axis])


def shape_text(spec: TensorSpec) -> str:
    """Write a shape with the batch axis as ``N``: ``(N, 3, 32, 32)``."""
    sizes = ["N" if axis == spec.batch_axis else str(size) for axis, size in enumerate(spec.shape)]
    return f"({', '.join(sizes)})"


def _read(
    location: str, specs: Sequence[TensorSpec], preprocessing: Mapping[str, Preprocessing]
) -> tuple[dict[str, Array], Array | None]:
    path = Path(location)
    if path.is_dir():
        return _read_folder(path, specs, preprocessing)
    if path.suffix == ".npz":
        return _read_npz(path)
    if ":" in location:
        return _read_callable(location)
    raise DataError(f"cannot read data from '{location}': expected an .npz file, a folder of images or module:callable")


def _read_npz(path: Path) -> tuple[dict[str, Array], Array | None]:
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except FileNotFoundError as error:
        raise DataError(f"no such file: {path}") from error
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    labels = arrays.pop("labels", None)
    return arrays, labels


def _read_folder(
    folder: Path, specs: Sequence[TensorSpec], preprocessing: Mapping[str, Preprocessing]
) -> tuple[dict[str, Array], Array]:
    if len(specs) != 1 or specs[0].name not in preprocessing:
        raise DataError(
            f"{folder}: a folder of images needs a model with one image input and its preprocessing (--preprocess)"
        )
    classes = sorted(child for child in folder.iterdir() if child.is_dir())
    files = [
        (file, index)
        for index, name in enumerate(classes)
        for file in sorted(name.iterdir())
        if file.suffix.lower() in IMAGE_SUFFIXES
    ]
    if not files:
        raise DataError(
            f"{folder}: no images found; expected one sub-folder of {', '.join(IMAGE_SUFFIXES)} files a class"
        )
    rule = preprocessing[specs[0].name]
    images = np.stack([apply(read_image(file), rule, specs[0].dtype) for file, _ in files])
    return {specs[0].name: images}, np.array([index for _, index in files])


def _read_callable(location: str) -> tuple[dict[str, Array], Array | None]:
    """Call ``module:callable`` and join the batches it yields: mappings of arrays, with or without ``labels``."""
    module, _, name = location.partition(":")
    try:
        batches: Iterable[Mapping[str, Array]] = getattr(import_module(module), name)()
    except (ImportError, AttributeError) as error:
        raise DataError(f"cannot load data from '{location}': {error}") from error
    parts: dict[str, list[Array]] = {}
    for batch in batches:
        for key, value in batch.items():
            parts.setdefault(key, []).append(np.asarray(value))
    if not parts:
        raise DataError(f"'{location}' yielded no batches")
    arrays = {key: np.concatenate(values) if values[0].ndim else values[0] for key, values in parts.items()}
    labels = arrays.pop("labels", None)
    return arrays, labels
