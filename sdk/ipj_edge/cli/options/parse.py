"""Arguments that are small languages of their own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast, get_args

import numpy as np

from ipj_edge.errors import ConfigError, reading
from ipj_edge.samples.preprocess import check_rule
from ipj_edge.toml_files import read_toml
from ipj_edge.units import hundredths
from ipj_edge.values import Meaning, Preprocessing, TensorSpec

_SCALAR = "scalar"
_SHAPE = re.compile(rf"(\d+(x\d+)*)?|{_SCALAR}")
_FORM = "NAME:SHAPE[:DTYPE[:LOW..HIGH]], e.g. image:1x3x32x32 or ids:1x128:int64:0..30521"


def tensor_spec(text: str) -> TensorSpec:
    """Parse ``--input``: ``image:1x1x8x8``, ``ids:1x128:int64:0..30521``; a shape that is empty or scalar has no axis.

    It is read from the end: names may have colons of their own, as those of TensorFlow's tensors do (``input:0``).

    Raises:
        ConfigError: not of that form.
    """
    parts = text.split(":")
    span = parts.pop() if ".." in parts[-1] else None
    dtype = parts.pop() if parts and not _SHAPE.fullmatch(parts[-1]) else "float32"
    if len(parts) < 2 or not parts[0]:
        raise ConfigError(f"--input '{text}': expected {_FORM}")
    shape = _shape(text, parts.pop())
    return TensorSpec(
        name=":".join(parts),
        shape=shape,
        dtype=_dtype(text, dtype),
        batch_axis=0 if shape else None,
        value_range=None if span is None else _range(text, span, dtype),
    )


def output_names(texts: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, Meaning]]:
    """Parse ``--output NAME[:MEANING]``: names in order, and the meanings given; names may have colons.

    Raises:
        ConfigError: an unknown meaning.
    """
    meanings: dict[str, Meaning] = {}
    names = []
    for text in texts:
        name, _, meaning = text.rpartition(":")
        if meaning in get_args(Meaning) and name:
            meanings[name] = cast(Meaning, meaning)
        elif name and meaning.isalpha():
            raise ConfigError(f"--output '{text}': the meaning is one of {', '.join(get_args(Meaning))}")
        else:
            name = text
        names.append(name)
    return tuple(names), meanings


def drop(text: str | None) -> float | None:
    """Parse a drop in percentage points: ``1pp`` is 0.01.

    Raises:
        ConfigError: without its unit, or out of range.
    """
    if text is None:
        return None
    value = hundredths(text, "pp")
    if value is None or not 0 <= value <= 1:
        raise ConfigError(f"'{text}': expected percentage points with their unit, e.g. 1pp or 0.5pp")
    return value


def percent(text: str) -> float:
    """Parse a percentage: ``5%`` is 0.05.

    Raises:
        ConfigError: without its unit, or not above 0.
    """
    value = hundredths(text, "%")
    if value is None or not 0 < value < 1:
        raise ConfigError(f"'{text}': expected a percentage with its unit, e.g. 5%")
    return value


def share(text: str | None) -> float | None:
    """Parse a share: ``90%`` is 0.9, ``100%`` is all.

    Raises:
        ConfigError: without its unit, or out of range.
    """
    if text is None:
        return None
    value = hundredths(text, "%")
    if value is None or not 0 <= value <= 1:
        raise ConfigError(f"'{text}': expected a percentage with its unit, e.g. 90%")
    return value


def labels(path: str | None) -> tuple[str, ...]:
    """Read class names, one a line.

    Raises:
        ConfigError: missing or empty.
    """
    if path is None:
        return ()
    with reading(f"labels from {path}", ConfigError):
        names = tuple(line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip())
    if not names:
        raise ConfigError(f"{path} holds no labels: expected one class name a line")
    return names


def preprocessing(path: str | None) -> dict[str, Preprocessing]:
    """Read a preprocessing TOML: one table an input, or bare keys for the model's only one (named ``""`` here).

    Raises:
        ConfigError: missing, or not of that form.
    """
    if path is None:
        return {}
    file = read_toml(Path(path), "preprocessing")
    if not file.table:
        raise file.error("it says nothing; see `Preprocessing` in docs/manifest.schema.json")
    several = all(isinstance(value, dict) for value in file.table.values())
    rules = {name: file.to(Preprocessing, name) for name in file.table} if several else {"": file.to(Preprocessing)}
    for name, rule in rules.items():
        try:
            check_rule(rule)
        except ConfigError as error:
            raise file.error(str(error), *filter(None, (name,))) from error
    return rules


def _shape(text: str, shape: str) -> tuple[int | str, ...]:
    if shape in ("", _SCALAR):
        return ()
    sizes = shape.split("x")
    if not all(size.isdecimal() and int(size) > 0 for size in sizes):
        raise ConfigError(f"--input '{text}': '{shape}' is no shape; expected {_FORM}")
    return tuple(int(size) for size in sizes)


def _dtype(text: str, name: str) -> str:
    try:
        return np.dtype(name).name
    except TypeError as error:
        raise ConfigError(f"--input '{text}': '{name}' is no dtype; expected {_FORM}") from error


def _range(text: str, span: str, dtype: str) -> tuple[float, float]:
    low, dots, high = span.partition("..")
    try:
        values = float(low), float(high)
    except ValueError:
        dots, values = "", (0.0, 0.0)
    if not dots or values[0] >= values[1]:
        raise ConfigError(f"--input '{text}': '{span}' is no range; expected LOW..HIGH")
    kind = np.dtype(dtype)
    whole = kind.kind in "iu"
    if whole and not (all(map(float.is_integer, values)) and _holds(kind, values)):
        raise ConfigError(f"--input '{text}': '{span}' is no range of {kind}; expected whole numbers that it can hold")
    return values


def _holds(kind: np.dtype[np.generic], values: tuple[float, float]) -> bool:
    limits = np.iinfo(kind.name)
    return int(values[0]) >= limits.min and int(values[1]) <= limits.max
