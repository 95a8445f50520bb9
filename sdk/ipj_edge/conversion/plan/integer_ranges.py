"""Which whole numbers each input takes: as declared, as its tables are long, or as real data showed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from ipj_edge.samples.data import Samples
from ipj_edge.values import TensorSpec

_PIXEL_BYTES = 1


def with_integer_ranges(
    inputs: Sequence[TensorSpec], declared: Iterable[str], real: Sequence[Samples]
) -> tuple[tuple[TensorSpec, ...], tuple[str, ...]]:
    """Return inputs with a value range for whole numbers, and notes on those that real data alone decided.

    What the user declared stays. A range that the source found (the rows of a table) is widened to the data, since
    negative indices count from a table's end. Pixels of 8 bits take all values of their dtype.

    Args:
        inputs: The source's inputs.
        declared: Names of the inputs whose range the user declared.
        real: Calibration set and data, as far as there are any.
    """
    named, notes, ranged = set(declared), [], []
    for spec in inputs:
        kind = np.dtype(spec.dtype)
        seen = _seen(spec, real)
        if kind.kind not in "iu" or kind.itemsize == _PIXEL_BYTES or spec.name in named or seen is None:
            ranged.append(spec)
            continue
        if spec.value_range is None:
            notes.append(_note(spec, seen))
        known = spec.value_range or seen
        both = (min(known[0], seen[0]), max(known[1], seen[1]))
        ranged.append(msgspec.structs.replace(spec, value_range=both))
    return tuple(ranged), tuple(notes)


def _seen(spec: TensorSpec, real: Sequence[Samples]) -> tuple[float, float] | None:
    arrays = [samples.arrays[spec.name] for samples in real if samples.arrays[spec.name].size]
    if not arrays:
        return None
    return min(float(array.min()) for array in arrays), max(float(array.max()) for array in arrays)


def _note(spec: TensorSpec, seen: tuple[float, float]) -> str:
    shape = "x".join("1" if isinstance(size, str) else str(size) for size in spec.shape) or "scalar"
    return (
        f"'{spec.name}' takes {seen[0]:.0f} to {seen[1]:.0f}, as the data given; other values are refused at run time: "
        f"declare what it takes with --input {spec.name}:{shape}:{spec.dtype}:LOW..HIGH"
    )
