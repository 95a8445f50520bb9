"""Results on disk: JSON that every program can read, and the raw samples beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ipj_edge.benchmark.result.schema import RESULT_VERSION, BenchResult
from ipj_edge.errors import DataError, DestinationError, first_line, reading
from ipj_edge.protocols import Array
from ipj_edge.writing import check_writable, replacing


def read_result(path: Path) -> BenchResult:
    """Read a result of this version or an older one.

    Raises:
        DataError: missing, damaged, no result at all, or of a newer version.
    """
    with reading(f"the result {path}", DataError):
        return _parsed(path, path.read_bytes())


def _parsed(path: Path, content: bytes) -> BenchResult:
    try:
        head = msgspec.json.decode(content)
        version = head.get("version") if isinstance(head, dict) and "results" in head else None
        if isinstance(version, int) and version > RESULT_VERSION:
            raise DataError(
                f"{path} has result version {version}, this ipj-edge reads up to {RESULT_VERSION}: update ipj-edge"
            )
        result = msgspec.json.decode(content, type=BenchResult)
        if result.started:
            datetime.fromisoformat(result.started)
        return result
    except msgspec.ValidationError as error:
        raise DataError(f"{path} is no result of `ipj-edge bench --json`: {error}") from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged or no JSON: {first_line(error)}") from error


def encode(value: Any) -> bytes:
    """Return indented JSON.

    Raises:
        DataError: a number is not finite; JSON has no such numbers, and msgspec would write null without a word.
    """
    bad = _not_finite(msgspec.to_builtins(value), "")
    if bad:
        raise DataError(f"the value at {bad} is no finite number, and JSON has none of that kind: nothing was written")
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def check_free(paths: Sequence[str | Path | None], *, force: bool) -> None:
    """Refuse, before the work, places that are taken or cannot be written. ``-`` is stdout.

    Raises:
        DestinationError: names the place.
    """
    for path in (Path(path) for path in paths if path not in (None, "-") and path is not None):
        check_writable(path)
        if path.exists() and not force:
            raise DestinationError(f"{path} exists: give --force to replace it, or another name")


def samples_path(json_path: Path) -> Path:
    """Return where the raw samples of a result go: ``result.json`` has ``result.samples.npz`` beside it."""
    return json_path.with_name(f"{json_path.name.removesuffix('.json')}.samples.npz")


def write_samples(path: Path, latencies: Mapping[int, Array]) -> None:
    """Write the latencies of every entry, by its place in the result: ``latency_s/0``, ``latency_s/1`` …

    Raises:
        DestinationError: the file cannot be written.
    """
    with replacing(path) as stream:
        np.savez_compressed(stream, **{f"latency_s/{place}": kept for place, kept in latencies.items()})  # type: ignore[arg-type]


def _not_finite(value: Any, place: str) -> str:
    """Return the place of the first number that is not finite, or an empty text."""
    if isinstance(value, float):
        return "" if math.isfinite(value) else place
    if isinstance(value, Mapping):
        parts = ((f"{place}.{name}".lstrip("."), item) for name, item in value.items())
    elif isinstance(value, list | tuple):
        parts = ((f"{place}[{index}]", item) for index, item in enumerate(value))
    else:
        return ""
    return next((bad for name, item in parts if (bad := _not_finite(item, name))), "")
