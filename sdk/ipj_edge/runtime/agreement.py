"""Whether the whole numbers of two answers agree: labels, indices, counts and bits have no distance, only equality."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ipj_edge.protocols import Array
from ipj_edge.values import Precision

INT8_AGREEMENT = 0.97
ENOUGH_PLACES = 100
_MOST_RANKS = 1024
_MANY_PLACES = 1000
# Scores this close, relative to the largest of an output, are equal in float32: engines add in different orders.
_EQUAL_SCORES: dict[Precision, float] = {"fp32": 1e-6, "fp16": 2.0**-9, "bf16": 2.0**-6, "int8": 1e-6}
# Where no scores are at hand, this share of many places may be ties: two scores are as often equal in a precision as a
# step of it is of their size (a little more for float32, in which engines add in different orders).
_TIE_SHARE: dict[Precision, float] = {"fp32": 2.0**-20, "fp16": 2.0**-10, "bf16": 2.0**-7, "int8": 0.0}


class Agreement(NamedTuple):
    """How far whole numbers agree.

    Attributes:
        share: Share of the places that agree, ties of equal scores counted as agreement.
        places: Places that were judged; those that only differ in the order of scores too close for int8 are not.
        failure: What is wrong, or an empty text.
    """

    share: float
    places: int
    failure: str


class Judgement(NamedTuple):
    """By what whole numbers are judged.

    Attributes:
        precision: Precision of the bundle.
        judged: False for figures alone.
        own: Whether both sides are the bundle itself, at two batch sizes.
        tolerance: Share of the places that the user allows to differ; None for the precision's own.
        batch_axis: Axis of the samples; None where there is none.
    """

    precision: Precision
    judged: bool
    own: bool = False
    tolerance: float | None = None
    batch_axis: int | None = None


def holds_whole_numbers(values: Array) -> bool:
    """Say whether an output holds integers or booleans."""
    return values.dtype.kind in "iub"


def agree(name: str, reference: Mapping[str, Array], candidate: Mapping[str, Array], by: Judgement) -> Agreement:
    """Compare an output of whole numbers with the source's.

    Args:
        name: The output.
        reference: All outputs of the source: scores among them tell what is a tie.
        candidate: All outputs of the bundle, of the same shapes and dtypes as the source's.
        by: What is allowed.
    """
    want, got = reference[name], candidate[name]
    differs, open_places = np.asarray(want != got), 0
    if differs.any():
        tied, close = _by_scores(name, reference, candidate, by)
        differs = differs & ~tied
        open_places = int((differs & close).sum())
        differs = differs & ~close
    places, wrong = want.size - open_places, int(differs.sum())
    share = 1.0 - wrong / places if places else 1.0
    failure = _failure(wrong, places, by) if by.judged else ""
    if by.judged and not failure and by.precision == "int8" and not by.own:
        failure = _lost_value(want, got, differs)
    return Agreement(share=share, places=places, failure=failure)


def _failure(wrong: int, places: int, by: Judgement) -> str:
    if wrong == 0:
        return ""
    told = f"agreement {1 - wrong / places:.2%}: {wrong} of {places} whole numbers differ"
    if by.precision != "int8":
        ties = _TIE_SHARE[by.precision] if places >= _MANY_PLACES else 0.0
        if wrong <= max(ties, by.tolerance or 0.0) * places:
            return ""
        return f"{told}, none may (ties of equal scores aside)"
    least = INT8_AGREEMENT if by.tolerance is None else min(INT8_AGREEMENT, 1 - by.tolerance)
    if by.own:
        return "" if wrong <= max(1.0, (1 - least) * places) else f"{told} from those of the same samples in one batch"
    if places < ENOUGH_PLACES:
        return f"{told}; of fewer than {ENOUGH_PLACES} none may: give more samples"
    return "" if 1 - wrong / places >= least else f"{told}, at least {least:.0%} must agree"


def _lost_value(want: Array, got: Array, differs: Array) -> str:
    """Say which value the source gives often and the bundle never where it should; or an empty text."""
    values, lost = np.unique(want[differs], return_counts=True)
    often = values[lost >= ENOUGH_PLACES]
    dead = often[~np.isin(often, want[~differs])] if often.size else often
    if not dead.size:
        return ""
    places = int((want == dead[0]).sum())
    return f"the source answers {dead[0]} at {places} places, and the bundle at none of them"


class _Loss(NamedTuple):
    """What the bundle's indices lose in scores, by place; whether they rank entries; where they may be ties."""

    by_place: Array
    ranks: bool
    may_tie: Array | bool = True


def _by_scores(
    name: str, reference: Mapping[str, Array], candidate: Mapping[str, Array], by: Judgement
) -> tuple[Array, Array]:
    """Return where another output proves that two answers are equally right, and where its scores are too close.

    An index is right if its score is as large as that of the source's index, within what the scores themselves differ:
    a bundle whose scores err by at most e can only prefer a score that is less by at most 2e. In int8 that excuses the
    order of a ranking, and no class number.
    """
    want, got = reference[name], candidate[name]
    tied, close = np.zeros(want.shape, bool), np.zeros(want.shape, bool)
    for other, scores in reference.items():
        ours = candidate[other]
        if scores.dtype.kind != "f" or not scores.size or not (np.isfinite(scores).all() and np.isfinite(ours).all()):
            continue
        ranked = _loss_by_rank(want, got, scores, last_is_known=by.precision == "fp32")
        loss = ranked or _loss_by_gathering(want, got, scores, by.batch_axis)
        if loss is None:
            continue
        equal = _EQUAL_SCORES[by.precision] * float(np.abs(scores).max())
        error = max(equal, 2 * float(np.abs(scores.astype(np.float64) - ours.astype(np.float64)).max()))
        tied |= (loss.by_place <= (equal if by.precision == "int8" else error)) & loss.may_tie
        if by.precision == "int8" and loss.ranks:
            close |= loss.by_place <= error
    return tied, close


def _loss_by_gathering(want: Array, got: Array, scores: Array, batch_axis: int | None) -> _Loss | None:
    """Compare scores at the bundle's indices with those at the source's; None where want are no indices of scores."""
    if scores.ndim not in (want.ndim, want.ndim + 1):
        return None
    for axis in range(scores.ndim):
        indices = want if want.ndim == scores.ndim else np.expand_dims(want, axis)
        if axis == batch_axis or not _fits(indices, scores, axis):
            continue
        best = np.take_along_axis(scores, indices.astype(np.intp), axis)
        if not any(np.array_equal(best, ends) for ends in _ends(scores, axis, indices.shape[axis])):
            continue
        theirs = got.reshape(indices.shape)
        inside = (theirs >= 0) & (theirs < scores.shape[axis])
        chosen = np.take_along_axis(scores, np.where(inside, theirs, 0).astype(np.intp), axis)
        lost = np.where(inside, np.abs(best.astype(np.float64) - chosen), np.inf).reshape(want.shape)
        return _Loss(lost, ranks=indices.shape[axis] > 1)
    return None


def _fits(indices: Array, scores: Array, axis: int) -> bool:
    """Say whether whole numbers can be indices along an axis of scores."""
    others = [
        size == other if place != axis else size <= other
        for place, (size, other) in enumerate(zip(indices.shape, scores.shape, strict=True))
    ]
    return all(others) and indices.size > 0 and indices.min() >= 0 and indices.max() < scores.shape[axis]


def _ends(scores: Array, axis: int, count: int) -> tuple[Array, Array]:
    """Return the largest scores, falling, and the smallest, rising."""
    if count == 1:
        return scores.max(axis, keepdims=True), scores.min(axis, keepdims=True)
    ranked = np.sort(scores, axis)
    return tuple(each.take(np.arange(count), axis=axis) for each in (np.flip(ranked, axis), ranked))  # type: ignore[return-value]


def _loss_by_rank(want: Array, got: Array, values: Array, *, last_is_known: bool) -> _Loss | None:
    """Return how far each of the sorted values is from its nearest neighbour; None where they are not sorted.

    The values of a TopK say no more: an index has to be the source's unless its neighbour in rank is as large. The
    neighbour of the last one is not among them: its rank is clear in float32 alone. The values of a bundle may be
    nearer to the source's than its scores are, so the gaps are halved.
    """
    if values.shape != want.shape or values.ndim < 2 or not 2 <= values.shape[-1] <= _MOST_RANKS:
        return None
    steps = np.diff(values.astype(np.float64), axis=-1)
    if (steps > 0).any() and (steps < 0).any():
        return None
    edge = (*steps.shape[:-1], 1)
    below = np.concatenate([np.abs(steps), np.full(edge, np.inf if last_is_known else 0.0)], axis=-1)
    above = np.concatenate([np.full(edge, np.inf), np.abs(steps)], axis=-1)
    # Of equal values only the order is open, but where more of them may lie beyond the last.
    known = (got[..., :, None] == want[..., None, :]).any(axis=-1) | (values == values[..., -1:])
    return _Loss(np.minimum(below, above) / 2, ranks=True, may_tie=known & (np.minimum(below, above) < np.inf))
