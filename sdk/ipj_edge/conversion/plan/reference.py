"""What the source answers: the truth that bundles are compared with, computed once for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from ipj_edge.errors import ConfigError, SourceError
from ipj_edge.protocols import Array, SizedSource, Source
from ipj_edge.samples.data import Samples
from ipj_edge.values import Meaning, TensorSpec

GOLDEN_SAMPLES = 8
PARITY_SAMPLES = 512


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """Sets of inputs and the source's outputs on them.

    Attributes:
        sets: Inputs by name of the set.
        answers: The source's outputs by name of the set, then by name of the output.
        outputs: The source's outputs, meanings decided.
    """

    sets: dict[str, Samples]
    answers: dict[str, dict[str, Any]]
    outputs: tuple[TensorSpec, ...]


def answer(source: Source, samples: Samples, at_once: int) -> dict[str, Array]:
    """Run a source on all samples, as many at once as it takes.

    Raises:
        SourceError: it fails, or answers NaN or infinity everywhere in an output.
    """
    step = static_batch(source.inputs) or at_once
    parts = [source.run(samples.rows(source.inputs, start, start + step)) for start in range(0, samples.count, step)]
    joined = {spec.name: _joined(spec, [part[spec.name] for part in parts]) for spec in source.outputs}
    for name, value in joined.items():
        if value.dtype.kind == "f" and value.size and not np.isfinite(value).any():
            raise SourceError(f"the source itself answers NaN or infinity in '{name}': check its weights")
    return joined


def _joined(spec: TensorSpec, parts: Sequence[Array]) -> Array:
    if spec.batch_axis is None:
        return parts[0]
    shapes = {part.shape[1:] for part in parts}
    if len(shapes) > 1:
        raise SourceError(
            f"the shape of output '{spec.name}' hangs on the values of the inputs ({' or '.join(map(str, shapes))} a "
            "sample): give --max-batch 1, and the model's batch as a fixed size with --input"
        )
    return np.concatenate(parts)


def check_unbatched_outputs(source: Source, samples: Samples, at_once: int) -> None:
    """Refuse an output that has no batch axis and yet depends on how many samples are given at once.

    Args:
        source: The model.
        samples: Inputs of it, two at least.
        at_once: Largest batch it is to take; 1 gives every sample an answer of its own.

    Raises:
        ConfigError: names the output and the remedy.
    """
    names = [spec.name for spec in source.outputs if spec.batch_axis is None]
    if not names or at_once == 1 or static_batch(source.inputs) is not None:
        return
    one, two = (source.run(samples.rows(source.inputs, 0, size)) for size in (1, 2))
    for name in names:
        if one[name].shape != two[name].shape or not np.allclose(one[name], two[name], equal_nan=True):
            raise ConfigError(
                f"output '{name}' has no batch axis and changes with the samples that are given at once: "
                "--max-batch 1 gives every sample an answer of its own"
            )


def drawn_count(inputs: Sequence[TensorSpec], max_batch: int) -> int:
    """Return how many samples to draw: the largest batch at least, in whole batches of a fixed size."""
    if all(spec.batch_axis is None for spec in inputs):
        return 1
    step, least = static_batch(inputs) or 1, max(max_batch, 2 * GOLDEN_SAMPLES)
    return -(-least // step) * step


def only_size(source: Source) -> str:
    """Return why a source takes one size along its first axis only; empty where it takes any number of samples."""
    return source.only_size if isinstance(source, SizedSource) else ""


def spread(samples: Samples, specs: Sequence[TensorSpec], count: int) -> Samples:
    """Return at most count samples, evenly spaced over a set."""
    count = max(count, static_batch(specs) or 1)
    if samples.count <= count:
        return samples
    chosen = np.linspace(0, samples.count - 1, count).round().astype(np.intp)
    arrays = {
        spec.name: samples.arrays[spec.name][chosen] if spec.batch_axis is not None else samples.arrays[spec.name]
        for spec in specs
    }
    labels = None if samples.labels is None else samples.labels[chosen]
    return Samples(arrays=arrays, labels=labels, count=count)


def whole_batches(samples: Samples, specs: Sequence[TensorSpec]) -> Samples:
    """Drop the last samples that do not fill a batch of a model whose batch size is fixed.

    Raises:
        ConfigError: there are fewer samples than one batch.
    """
    step = static_batch(specs) or 1
    count = samples.count // step * step
    if count == 0:
        raise ConfigError(f"the model takes batches of {step}: give at least {step} samples")
    return samples if count == samples.count else Samples(
        arrays=samples.rows(specs, 0, count),
        labels=None if samples.labels is None else samples.labels[:count],
        count=count,
    )  # fmt: skip


def decide_meanings(
    outputs: Sequence[TensorSpec],
    answers: Mapping[str, Array],
    said: Mapping[str, Meaning],
    classes: int | None,
) -> tuple[TensorSpec, ...]:
    """Decide what outputs hold: as said, else scores of classes where labels show that, else ``other``.

    Args:
        outputs: The source's outputs.
        answers: What it answered, by output name.
        said: Meanings the user gave by output name.
        classes: Number of labels, or of classes seen in the data; None where nobody gave labels.

    Raises:
        ConfigError: a meaning for an output the source does not have.
    """
    unknown = set(said) - {spec.name for spec in outputs}
    if unknown:
        raise ConfigError(
            f"no output named {', '.join(sorted(unknown))}; the source has {', '.join(spec.name for spec in outputs)}"
        )
    return tuple(
        msgspec.structs.replace(spec, meaning=said.get(spec.name) or _infer(answers[spec.name], classes))
        for spec in outputs
    )


def _infer(values: Array, classes: int | None) -> Meaning:
    if classes is None or values.ndim != 2 or values.shape[1] < max(2, classes) or values.dtype.kind != "f":
        return "other"
    sums_to_one = np.allclose(values.sum(axis=1), 1.0, atol=1e-3) and values.min() >= 0
    return "probabilities" if sums_to_one else "logits"


def static_batch(specs: Sequence[TensorSpec]) -> int | None:
    """Return the only batch size that inputs take; None where it is dynamic or there is none."""
    sizes = [spec.shape[spec.batch_axis] for spec in specs if spec.batch_axis is not None]
    static = [size for size in sizes if isinstance(size, int)]
    return static[0] if static else None
