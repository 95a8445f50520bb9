"""Seeded random inputs for parity: asymmetric, never ones or zeros, within the range the model is used in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ipj_edge.errors import ConfigError
from ipj_edge.protocols import Array
from ipj_edge.samples.data import Samples
from ipj_edge.values import TensorSpec


def random_samples(specs: Sequence[TensorSpec], count: int, seed: int, like: Samples | None) -> Samples:
    """Draw random inputs.

    Args:
        specs: The model's inputs.
        count: Number of samples.
        seed: Seed; the same seed gives the same inputs.
        like: Real inputs whose ranges and dynamic sizes are taken over, where there are any.

    Raises:
        ConfigError: an integer input without a range, or a dynamic size nobody gave.
    """
    random = np.random.default_rng(seed)
    alone = all(spec.batch_axis is None for spec in specs)
    arrays = {
        spec.name: _draw(random, spec, count, None if like is None else like.arrays[spec.name], alone=alone)
        for spec in specs
    }
    return Samples(arrays=arrays, labels=None, count=count)


def _draw(random: np.random.Generator, spec: TensorSpec, count: int, like: Array | None, *, alone: bool) -> Array:
    # A setting is taken as it is; what has two axes and no samples beside it is data of one fixed size.
    setting = spec.batch_axis is None and not (alone and len(spec.shape) > 1 and spec.dtype.startswith("float"))
    if setting and like is not None:
        return like
    shape = _shape(spec, count, like)
    low, high = _range(spec, like)
    kind = np.dtype(spec.dtype)
    if kind.kind == "b":
        return random.random(shape) < 0.3
    if kind.kind in "iu":
        return _with_both_ends(random.integers(int(low), int(high), shape, dtype=kind, endpoint=True), low, high)
    # Squared uniforms lean to the low end: no symmetry of the distribution can hide a swapped axis or sign.
    return (low + (high - low) * random.random(shape) ** 2).astype(kind)


def _with_both_ends(drawn: Array, low: float, high: float) -> Array:
    """Return whole numbers that reach both ends of their range: the last row of a table is a case of its own."""
    if drawn.size:
        drawn.flat[0], drawn.flat[-1] = int(low), int(high)
    return drawn


def _shape(spec: TensorSpec, count: int, like: Array | None) -> tuple[int, ...]:
    sizes: list[int] = []
    for axis, size in enumerate(spec.shape):
        if axis == spec.batch_axis:
            sizes.append(count)
        elif isinstance(size, int):
            sizes.append(size)
        elif like is not None:
            sizes.append(like.shape[axis])
        else:
            raise ConfigError(
                f"'{spec.name}' has a dynamic size '{size}': give --calibration or --data, or the sizes with "
                f"--input {spec.name}:1x…"
            )
    return tuple(sizes)


def _seen(like: Array | None) -> tuple[float, float] | None:
    """Return the smallest and the largest finite value of real inputs, or None where there are none."""
    finite = None if like is None else like[np.isfinite(like)]
    return None if finite is None or not finite.size else (float(finite.min()), float(finite.max()))


def _range(spec: TensorSpec, like: Array | None) -> tuple[float, float]:
    seen = _seen(like)
    kind = np.dtype(spec.dtype)
    if kind.kind in "iu" and spec.value_range is not None:
        return spec.value_range
    if seen is not None and seen[0] < seen[1]:
        return seen
    if spec.value_range is not None:
        return spec.value_range
    if kind == np.uint8:
        return 0.0, 255.0
    if kind.kind in "iu" and seen is not None:
        return seen
    if kind.kind in "iu":
        raise ConfigError(
            f"'{spec.name}' is {spec.dtype} and nobody said which values it takes: give --calibration, --data, or "
            f"--input {spec.name}:{'x'.join(map(str, spec.shape)) or 'scalar'}:{spec.dtype}:LOW..HIGH"
        )
    return -1.0, 1.0
