"""From what a user names as data to arrays by name: ``.npz`` files, folders of images, ``module:callable``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ipj_edge.errors import DataError, IpjEdgeError, first_line, typed_line
from ipj_edge.protocols import Array
from ipj_edge.samples.npz import ArchiveError, read_npz
from ipj_edge.samples.preprocess import apply, read_image
from ipj_edge.values import Preprocessing, TensorSpec

_NPY_MAGIC = b"\x93NUMPY"
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")

ArraysAndLabels = tuple[dict[str, Array], Array | None]


def read(
    location: str,
    specs: Sequence[TensorSpec],
    preprocessing: Mapping[str, Preprocessing],
    classes: Sequence[str],
) -> ArraysAndLabels:
    """Read arrays by name, and labels where there are any; see `ipj_edge.samples.data.load_samples`.

    Raises:
        DataError: missing or unreadable; says what was expected.
    """
    path = Path(location)
    if path.is_dir():
        return _read_folder(path, specs, preprocessing, classes)
    if path.suffix == ".npz":
        return _read_npz(path)
    if ":" in location:
        return _read_callable(location)
    raise DataError(f"cannot read data from '{location}': expected an .npz file, a folder of images or module:callable")


def _read_npz(path: Path) -> ArraysAndLabels:
    try:
        with path.open("rb") as stream:
            if stream.read(len(_NPY_MAGIC)) == _NPY_MAGIC:
                raise DataError(f"{path} is an .npy file, one array without a name: write it with numpy.savez(…, x=…)")
            stream.seek(0)
            arrays = read_npz(stream)
    except FileNotFoundError as error:
        raise DataError(f"no such file: {path}") from error
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}: {first_line(error)}") from error
    except ArchiveError as error:
        raise DataError(f"cannot read {path} as an .npz: {error}") from error
    labels = arrays.pop("labels", None)
    return arrays, labels


def _read_folder(
    folder: Path,
    specs: Sequence[TensorSpec],
    preprocessing: Mapping[str, Preprocessing],
    classes: Sequence[str],
) -> ArraysAndLabels:
    if len(specs) != 1 or specs[0].name not in preprocessing:
        raise DataError(
            f"{folder}: a folder of images needs a model with one image input and its preprocessing (--preprocess)"
        )
    # Hidden folders, such as those of notebooks, are no classes.
    folders = sorted(child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
    numbers = _class_numbers(folder, [child.name for child in folders], classes)
    files = [
        (file, number)
        for child, number in zip(folders, numbers, strict=True)
        for file in sorted(child.iterdir())
        if file.suffix.lower() in IMAGE_SUFFIXES
    ]
    if not files:
        raise DataError(
            f"{folder}: no images found; expected one sub-folder of {', '.join(IMAGE_SUFFIXES)} files a class"
        )
    rule = preprocessing[specs[0].name]
    images = np.stack([apply(read_image(file), rule, specs[0].dtype) for file, _ in files])
    return {specs[0].name: images}, np.array([number for _, number in files])


def _class_numbers(folder: Path, names: Sequence[str], classes: Sequence[str]) -> list[int]:
    """Return the class of every sub-folder: by the model's own class names where it has any, else in sorted order.

    Raises:
        DataError: some sub-folders have names of classes and others do not.
    """
    strangers = [name for name in names if name not in classes]
    if len(strangers) == len(names):
        return list(range(len(names)))
    if strangers:
        raise DataError(f"{folder}: {', '.join(strangers[:5])} is no class of the model ({', '.join(classes[:10])}, …)")
    return [list(classes).index(name) for name in names]


def _read_callable(location: str) -> ArraysAndLabels:
    """Call ``module:callable`` and join the batches it yields: mappings of arrays, with or without ``labels``."""
    module, _, name = location.partition(":")
    parts: dict[str, list[Array]] = {}
    count = 0
    with _users_code(location):
        batches: Iterable[Mapping[str, Any]] = getattr(import_module(module), name)()
        for batch in batches:
            count += 1
            for key, value in batch.items():
                parts.setdefault(key, []).append(np.asarray(value))
    if not parts:
        raise DataError(f"'{location}' yielded no batches")
    partial = [key for key, values in parts.items() if len(values) != count]
    if partial:
        raise DataError(f"'{location}': {', '.join(partial)} is missing from some of the {count} batches")
    with _users_code(location):
        arrays = {key: np.concatenate(values) if values[0].ndim else values[0] for key, values in parts.items()}
    labels = arrays.pop("labels", None)
    return arrays, labels


@contextmanager
def _users_code(location: str) -> Iterator[None]:
    """Run the user's code: its imports start at the working directory, and what it raises is told in one line."""
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    except IpjEdgeError:
        raise
    except Exception as error:
        raise DataError(f"cannot load data from '{location}': {typed_line(error)}") from error
    finally:
        with suppress(ValueError):
            sys.path.remove(folder)
