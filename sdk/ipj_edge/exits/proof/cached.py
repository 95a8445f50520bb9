"""Cached outputs of all exits on the tuning data, checked and split into what is searched and what is tested."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ipj_edge.errors import ConfigError, DataError
from ipj_edge.exits.policy.values import Loss, TuneRequest
from ipj_edge.exits.proof.certificate import split
from ipj_edge.exits.proof.losses import check_labels, deviation, error, harm, inconsistency, predictions
from ipj_edge.protocols import Array

FEWEST_SAMPLES = 20


class Cached(NamedTuple):
    """Outputs on n samples and what follows from them.

    Attributes:
        outputs: Outputs of every exit, each of shape (n, …).
        labels: Right classes of shape (n,), or None.
        predicted: Predicted classes of shape (n, exits); None where the exits do not answer with classes.
        right: Whether they are right, bool of shape (n, exits); None without labels or classes.
        loss: The loss that is bounded.
        losses: Losses of shape (n, exits).
        searched: Indices of the samples that choices are made on.
        tested: Indices of the samples that prove them.
    """

    outputs: tuple[Array, ...]
    labels: Array | None
    predicted: Array | None
    right: Array | None
    loss: Loss
    losses: Array
    searched: Array
    tested: Array


def prepare(outputs: Sequence[Array], labels: Array | None, request: TuneRequest) -> Cached:
    """Check cached outputs and labels, compute the losses and split the samples.

    Raises:
        ConfigError: one exit only, exits that do not fit each other, a loss that does not fit the outputs.
        DataError: too few samples, labels that do not fit, a last exit without a number.
    """
    _check_outputs(outputs)
    n = len(outputs[0])
    predicted = None if request.meaning == "other" else predictions(outputs)
    if labels is not None and predicted is not None:
        labels = check_labels(labels, n, outputs[0].shape[1])
    loss: Loss = request.loss or _usual_loss(labels, predicted)
    losses = _losses(loss, outputs, predicted, labels, request)
    searched, tested = split(_strata(labels, predicted, n), request.search_share, request.seed)
    right = None if labels is None or predicted is None else predicted == labels[:, None]
    return Cached(tuple(outputs), labels, predicted, right, loss, losses, searched, tested)


def _check_outputs(outputs: Sequence[Array]) -> None:
    if len(outputs) < 2:
        raise ConfigError("this model has one exit: there is nothing to tune; convert a model with two or more")
    sizes = {len(output) for output in outputs}
    if len(sizes) > 1:
        raise DataError(f"the exits were run on different numbers of samples: {sorted(sizes)}")
    n = sizes.pop()
    if n < FEWEST_SAMPLES:
        raise DataError(
            f"{n} samples are too few to tune on: {FEWEST_SAMPLES - n} are missing for a search at all, and a "
            "certificate needs some hundreds"
        )
    last = np.asarray(outputs[-1]).reshape(n, -1)
    bad = np.flatnonzero(np.isnan(last).any(axis=1))
    if bad.size:
        named = ", ".join(map(str, bad[:5])) + (", …" if bad.size > 5 else "")
        raise DataError(f"the last exit answers NaN for {bad.size} of {n} samples ({named}): fix the model or the data")


def _usual_loss(labels: Array | None, predicted: Array | None) -> Loss:
    if predicted is None:
        return "deviation"
    return "inconsistency" if labels is None else "harm"


def _losses(
    loss: Loss, outputs: Sequence[Array], predicted: Array | None, labels: Array | None, request: TuneRequest
) -> Array:
    if loss == "deviation":
        if request.deviation_scale is None:
            raise ConfigError("loss 'deviation' needs the distance that counts as a whole loss, in the outputs' unit")
        return deviation(outputs, request.deviation_scale)
    if predicted is None:
        raise ConfigError(f"loss '{loss}' needs exits that answer with classes; use loss 'deviation'")
    if loss == "inconsistency":
        return inconsistency(predicted)
    if labels is None:
        raise DataError(f"loss '{loss}' needs labels; give some, or use loss 'inconsistency'")
    return harm(predicted, labels) if loss == "harm" else error(predicted, labels)


def _strata(labels: Array | None, predicted: Array | None, n: int) -> Array:
    if predicted is None:
        return np.zeros(n, dtype=np.intp)
    return predicted[:, -1] if labels is None else labels
