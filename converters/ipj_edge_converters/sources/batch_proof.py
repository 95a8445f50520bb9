"""Whether an axis holds samples: asked of the source itself, in three runs on seeded inputs that no two samples share.

Samples are what can be given together or apart, in any order: the answers to a concatenation are the concatenation of
the answers, and permuted samples have permuted answers. A time axis fails that, and so does a model that mixes its
samples, by statistics over the batch for example.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from ipj_edge.errors import SourceError
from ipj_edge.protocols import Array
from ipj_edge.values import TensorSpec
from ipj_edge_converters.sources.apart import SourceLimitError
from ipj_edge_converters.sources.feeds import example_arrays, shape_text

SourceRun = Callable[[Sequence[Array]], Sequence[Array]]

# Of five samples, two and three are run apart, and all five together in another order.
_TOGETHER, _FIRST = 5, 2
# Sums in another order differ by rounding; what mixes samples moves answers by far more than a thousandth.
_ROUNDING = 1e-3
# A rounding may tip a few of many labels, or values of a quantized model, over to the next.
_TIPPED = 0.02


class _UnlikeShapesError(Exception):
    """Answers to two inputs of one shape differ in shape beyond the batch; names the output."""


class BatchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a source said when it was asked.

    Attributes:
        ran: Whether it ran at all on the sizes it was asked at.
        reason: Why its first axis holds no samples; empty where it does.
    """

    ran: bool
    reason: str = ""


class SizedInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs with a batch axis where they are proven to hold samples.

    Attributes:
        inputs: The inputs.
        only_size: Why no other size is taken; empty where any number of samples is.
        notes: What a reader of the manifest has to know.
    """

    inputs: tuple[TensorSpec, ...]
    only_size: str = ""
    notes: tuple[str, ...] = ()


def ask(
    run: SourceRun,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    *,
    largest: int,
    quantized: bool = False,
    given: Mapping[str, Array] | None = None,
) -> BatchAnswer:
    """Ask a source that may take any number of samples.

    Args:
        run: Runs the model as it is, never in parts.
        inputs: Its inputs.
        outputs: Its outputs; those with a batch axis are looked at.
        largest: Most samples it may be given.
        quantized: It computes in integers: a rounding may move a value by a whole step.
        given: Real inputs by name; settings are taken from there.
    """
    total = min(_TOGETHER, largest)
    first, order = min(_FIRST, total - 1), _order(total)

    def answers(lively: bool) -> tuple[Sequence[Array], Sequence[Array]]:
        drawn = example_arrays(inputs, total, lively=lively, given=given)
        apart = [run(_rows(drawn, inputs, slice(*rows))) for rows in ((0, first), (first, total))]
        joined = [_concatenated(parts, spec) for *parts, spec in zip(*apart, outputs, strict=True)]
        return _rows(joined, outputs, order), run(_rows(drawn, inputs, order))

    return _asked(answers, inputs, outputs, quantized)


def ask_at(
    run: SourceRun,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    *,
    size: int,
    quantized: bool = False,
    given: Mapping[str, Array] | None = None,
) -> BatchAnswer:
    """Ask a source that takes one number of samples only: it can show that an answer hangs on its own sample alone.

    Args:
        run: Runs the model as it is.
        inputs: Its inputs.
        outputs: Its outputs; those with a batch axis are looked at.
        size: The only number of samples, above 1.
        quantized: It computes in integers.
        given: Real inputs by name; settings are taken from there.
    """
    order = _order(size)
    kept = np.arange(size) >= size // 2

    def answers(lively: bool) -> tuple[Sequence[Array], Sequence[Array]]:
        drawn = example_arrays(inputs, size, lively=lively, given=given)
        other = example_arrays(inputs, size, lively=lively, given=given, seed=1)
        mixed = [
            array if spec.batch_axis is None else np.where(_along(kept, array, spec), array, strange)
            for array, strange, spec in zip(drawn, other, inputs, strict=True)
        ]
        alone = run(drawn)
        wanted = (_rows(alone, outputs, order), _rows(alone, outputs, kept))
        found = (run(_rows(drawn, inputs, order)), _rows(run(mixed), outputs, kept))
        return [_concatenated(pair, spec) for *pair, spec in zip(*wanted, outputs, strict=True)], [
            _concatenated(pair, spec) for *pair, spec in zip(*found, outputs, strict=True)
        ]

    return _asked(answers, inputs, outputs, quantized)


def runs_alone(size: int) -> str:
    """Say why a proven batch of one size is the only one that is taken."""
    return f"the source runs on {size} samples at a time and on no other number of them"


def size_unknown(reason: str, spec: TensorSpec) -> SourceError:
    """Return the refusal of a model whose first axis is open and holds no samples, with the remedies."""
    shape = shape_text(["SIZE" if axis == spec.batch_axis else size for axis, size in enumerate(spec.shape)])
    return SourceError(
        f"{reason}; give the size it is to have with --input {spec.name}:{shape}, or --max-batch 1 where each sample "
        "is to be run by itself"
    )


def wanted_size(described: Sequence[TensorSpec], batched: TensorSpec) -> int | None:
    """Return the size that a user gave an input's first axis; None where nobody did."""
    said = next((spec for spec in described if spec.name == batched.name), None)
    size = None if said is None or batched.batch_axis is None else said.shape[batched.batch_axis]
    return size if isinstance(size, int) else None


def batched_input(inputs: Sequence[TensorSpec]) -> TensorSpec | None:
    """Return the first input with an axis of samples; None where no input has one."""
    return next((spec for spec in inputs if spec.batch_axis is not None), None)


def without_batch(specs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """Return the same tensors with no axis of samples."""
    return tuple(msgspec.structs.replace(spec, batch_axis=None) for spec in specs)


def _asked(
    answers: Callable[[bool], tuple[Sequence[Array], Sequence[Array]]],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    quantized: bool,
) -> BatchAnswer:
    named = next(spec for spec in inputs if spec.batch_axis is not None)
    axis = f"axis {named.batch_axis} of '{named.name}'"
    if all(spec.batch_axis is None for spec in outputs):
        return BatchAnswer(ran=True, reason=f"no output has an answer for each place along {axis}")
    try:
        wanted, found = _lively_or_not(answers)
    except SourceLimitError:
        raise
    except SourceError:
        return BatchAnswer(ran=False)
    except _UnlikeShapesError as error:
        return BatchAnswer(ran=True, reason=f"the shape of output '{error}' hangs on the values along {axis}")
    for want, have, spec in zip(wanted, found, outputs, strict=True):
        if spec.batch_axis is not None and not _same(want, have, quantized):
            return BatchAnswer(
                ran=True,
                reason=f"the model mixes what lies along {axis}: '{spec.name}' of samples given together is not that "
                "of each alone (statistics over the batch, or an axis that is no batch, such as time)",
            )
    return BatchAnswer(ran=True)


def _lively_or_not(
    answers: Callable[[bool], tuple[Sequence[Array], Sequence[Array]]],
) -> tuple[Sequence[Array], Sequence[Array]]:
    """Whole numbers that nobody gave a range are tried as 0 and 1, and where that fails as the 0 that always fits."""
    try:
        return answers(True)
    except SourceLimitError:
        raise
    except SourceError:
        return answers(False)


def _order(total: int) -> Array:
    """Return an order that keeps no sample in its place and is no reversal."""
    return np.roll(np.arange(total), total // 2 + 1 if total > 2 else 1)


def _rows(arrays: Sequence[Array], specs: Sequence[TensorSpec], rows: slice | Array) -> list[Array]:
    return [
        array if spec.batch_axis is None else array[(slice(None),) * spec.batch_axis + (rows,)]
        for array, spec in zip(arrays, specs, strict=True)
    ]


def _along(kept: Array, array: Array, spec: TensorSpec) -> Array:
    """Return a mask over samples in a shape that spreads over an array."""
    return kept.reshape([-1 if axis == spec.batch_axis else 1 for axis in range(array.ndim)])


def _concatenated(parts: Sequence[Array], spec: TensorSpec) -> Array:
    if spec.batch_axis is None:
        return parts[0]
    try:
        return np.concatenate(parts, axis=spec.batch_axis)
    except ValueError as error:
        raise _UnlikeShapesError(spec.name) from error


def _same(want: Array, have: Array, quantized: bool) -> bool:
    """Say whether two answers are equal but for rounding."""
    if want.shape != have.shape:
        return False
    if want.dtype.kind != "f":
        return bool(np.mean(want != have) <= _TIPPED) if want.size else True
    finite = np.isfinite(want)
    if not np.array_equal(finite, np.isfinite(have)):
        return False
    scale = float(np.abs(want[finite]).max(initial=0.0))
    off = np.abs(want[finite].astype(np.float64) - have[finite]) > _ROUNDING * scale
    return bool(off.mean() <= _TIPPED) if quantized and off.size else not off.any()
