"""Arrays given to a source: examples, checks against its inputs, runs in parts of a size the model takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ipj_edge.errors import SourceError
from ipj_edge.protocols import Array, Feeds
from ipj_edge.values import TensorSpec

_SEED = 0


def check_feeds(feeds: Feeds, inputs: Sequence[TensorSpec]) -> None:
    """Refuse arrays that do not fit the inputs.

    Raises:
        SourceError: names what was expected and what came.
    """
    names = [spec.name for spec in inputs]
    if set(feeds) != set(names):
        raise SourceError(f"the model takes the inputs {', '.join(names)}; got {', '.join(sorted(feeds)) or 'none'}")
    for spec in inputs:
        array = feeds[spec.name]
        if str(array.dtype) != spec.dtype:
            raise SourceError(f"input '{spec.name}' takes {spec.dtype}; got {array.dtype}")
        if not _fits(array.shape, spec):
            raise SourceError(
                f"input '{spec.name}' takes shape {shape_text(spec.shape)}; got {shape_text(array.shape)}"
            )


def shape_text(shape: Sequence[int | str]) -> str:
    """Write a shape as users do on the command line, e.g. ``batchx3x32x32``; ``scalar`` for rank 0."""
    return "x".join(str(size) for size in shape) or "scalar"


def run_in_parts(
    run: Callable[[Feeds], dict[str, Array]],
    feeds: Feeds,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    largest: int,
) -> dict[str, Array]:
    """Run a model on any number of samples, in parts it can take, and join the answers.

    A static batch size is the size of the parts; a dynamic one is fed at most ``largest`` samples at a time.

    Raises:
        SourceError: the samples do not fill parts of a static size, or inputs disagree about how many there are.
    """
    batched = [spec for spec in inputs if spec.batch_axis is not None]
    samples = _samples(feeds, batched)
    static = static_batch(batched)
    size = static or largest
    if static is not None and samples is not None and samples % static:
        raise SourceError(f"the model takes {static} samples at a time; {samples} is not a multiple of that")
    if samples is None or samples <= size or any(spec.batch_axis is None for spec in outputs):
        return run(feeds)
    parts = [run(_part(feeds, batched, start, start + size)) for start in range(0, samples, size)]
    return {
        spec.name: np.concatenate([part[spec.name] for part in parts], axis=spec.batch_axis or 0) for spec in outputs
    }


def example_arrays(
    inputs: Sequence[TensorSpec],
    batch: int | None,
    *,
    lively: bool = False,
    seed: int = _SEED,
    given: Mapping[str, Array] | None = None,
) -> tuple[Array, ...]:
    """Make seeded example inputs.

    Floats lie in the input's value range, else in −1..1; integers in the value range, else they are zero, which
    is valid as an index anywhere.

    Args:
        inputs: The inputs; every size is a number except, perhaps, the batch.
        batch: Samples along the batch axis; None keeps the sizes of the specs.
        lively: Draw 0 and 1 for integers without a value range and for booleans, so that no two samples are equal.
        seed: Seed of the draw.
        given: Real inputs by name: those without a batch axis are taken from there, since they may say how large
            an output is.
    """
    random = np.random.default_rng(seed)
    real = {} if given is None else given
    return tuple(
        real[spec.name] if _is_setting(spec, real) else _example(spec, batch, random, lively) for spec in inputs
    )


def _is_setting(spec: TensorSpec, real: Mapping[str, Array]) -> bool:
    fits = spec.name in real and real[spec.name].dtype == spec.dtype
    return fits and spec.batch_axis is None and _fits(real[spec.name].shape, spec)


def _part(feeds: Feeds, batched: Sequence[TensorSpec], start: int, stop: int) -> dict[str, Array]:
    """Return these samples of every input that has a batch axis, and the others whole."""
    part = dict(feeds)
    for spec in batched:
        index = (slice(None),) * (spec.batch_axis or 0) + (slice(start, stop),)
        part[spec.name] = feeds[spec.name][index]
    return part


def _samples(feeds: Feeds, batched: Sequence[TensorSpec]) -> int | None:
    counts = {spec.name: feeds[spec.name].shape[spec.batch_axis or 0] for spec in batched}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise SourceError(f"the inputs disagree about the number of samples: {shown}")
    return next(iter(counts.values()), None)


def static_batch(inputs: Sequence[TensorSpec]) -> int | None:
    """Return the only batch size these inputs take; None when the batch is dynamic or there is none."""
    sizes = [spec.shape[spec.batch_axis] for spec in inputs if spec.batch_axis is not None]
    return next((size for size in sizes if isinstance(size, int)), None)


def _fits(shape: tuple[int, ...], spec: TensorSpec) -> bool:
    """Compare a shape with a spec's; the batch axis may hold any number of samples."""
    if len(shape) != len(spec.shape):
        return False
    pairs = enumerate(zip(shape, spec.shape, strict=True))
    return all(axis == spec.batch_axis or isinstance(want, str) or got == want for axis, (got, want) in pairs)


def _example(spec: TensorSpec, batch: int | None, random: np.random.Generator, lively: bool) -> Array:
    sizes = [
        batch if batch is not None and axis == spec.batch_axis else int(size) for axis, size in enumerate(spec.shape)
    ]
    dtype = np.dtype(spec.dtype)
    if dtype.kind == "f":
        low, high = spec.value_range or (-1.0, 1.0)
        return np.asarray(random.uniform(low, high, sizes), dtype)
    if (spec.value_range is None or dtype.kind == "b") and not lively:
        return np.zeros(sizes, dtype)
    low, high = (0, 1) if spec.value_range is None or dtype.kind == "b" else spec.value_range
    return np.asarray(random.integers(int(low), int(high), sizes, endpoint=True), dtype)
