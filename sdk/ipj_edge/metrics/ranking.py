"""Area under the ROC curve."""

from __future__ import annotations

import numpy as np

from ipj_edge.errors import DataError
from ipj_edge.metrics.bootstrap import RESAMPLES, bootstrap_interval
from ipj_edge.metrics.classification import check_classes
from ipj_edge.metrics.score import Batch, Score
from ipj_edge.protocols import Array
from ipj_edge.values import Interval

_NO_NUMBERS = "the model's scores are not all numbers"


def auc(scores: Array, positive: Array, weights: Array | None = None) -> float:
    """Return the probability that a positive scores above a negative, ties counting half (Mann–Whitney).

    Args:
        scores: Shape (n,).
        positive: Whether each sample is positive, bool of shape (n,).
        weights: How often each sample counts, shape (n,); None for once.

    Returns:
        NaN without a positive or without a negative.
    """
    order = np.argsort(scores, kind="stable")
    return _area(scores[order], positive[order], np.ones(len(scores)) if weights is None else weights[order])


def auc_interval(scores: Array, positive: Array) -> Interval:
    """Return the area with its bootstrap interval; resamples that lack a class are left out."""
    order = np.argsort(scores, kind="stable")
    ranked, labels, n = scores[order], positive[order], len(scores)

    def resampled(rng: np.random.Generator) -> float:
        while True:
            weights = np.bincount(rng.integers(0, n, n), minlength=n)
            if (weights[labels] > 0).any() and (weights[~labels] > 0).any():
                return _area(ranked, labels, weights)

    value = _area(ranked, labels, np.ones(n))
    return bootstrap_interval(value, resampled, resamples=max(100, min(RESAMPLES, 10_000_000 // n)))


def _area(ranked: Array, positive: Array, weights: Array) -> float:
    """Return the area for scores in rising order."""
    starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]])
    positives = np.add.reduceat(weights * positive, starts)
    negatives = np.add.reduceat(weights * ~positive, starts)
    below = np.cumsum(negatives) - negatives
    total = positives.sum() * negatives.sum()
    return float((positives * (below + negatives / 2)).sum() / total) if total else float("nan")


class Auc:
    """Area under the ROC curve of class scores: of class 1 for two classes, else the mean of one against the rest.

    For one against the rest, logits become probabilities first: only those can be ranked across samples.
    """

    name, is_rate, higher_is_better = "auc", False, True

    def __init__(self) -> None:
        self._scores: list[Array] = []
        self._labels: list[Array] = []

    def add(self, batch: Batch) -> None:
        """Keep the scores of one batch."""
        scores = batch.scores(self.name)
        check_classes(scores, batch.labels, self.name)
        if scores.shape[1] == 2:
            kept = scores[:, 1] - scores[:, 0]
        else:
            kept = np.exp(batch.log_probabilities(self.name)).astype(np.float32)
        self._scores.append(kept)
        self._labels.append(batch.labels)

    def score(self) -> Score:
        """Return the area; an interval only for two classes."""
        scores, labels = np.concatenate(self._scores), np.concatenate(self._labels)
        if scores.ndim == 1:
            return ranked(self.name, scores, labels == 1)
        if not np.isfinite(scores).all():
            return Score(metric=self.name, value=None, reason=_NO_NUMBERS, n=len(labels))
        areas = [auc(scores[:, one], labels == one) for one in range(scores.shape[1])]
        value = float(np.mean(areas))
        if not np.isfinite(value):
            return Score(metric=self.name, value=None, reason="a class has no sample in the data", n=len(labels))
        return Score(metric=self.name, value=value, n=len(labels))


class ReconstructionAuc:
    """Area under the ROC curve of an autoencoder's error: label 1 (abnormal) should be reconstructed worse."""

    name, is_rate, higher_is_better = "reconstruction-auc", False, True

    def __init__(self) -> None:
        self._errors: list[Array] = []
        self._labels: list[Array] = []

    def add(self, batch: Batch) -> None:
        """Keep the mean squared error of every sample of one batch."""
        wanted, got = next(iter(batch.inputs.values())), batch.values()
        if wanted.shape != got.shape:
            raise DataError(f"{self.name} needs an output shaped as the input; got {got.shape} and {wanted.shape}")
        difference = got.astype(np.float64) - wanted.astype(np.float64)
        self._errors.append((difference**2).reshape(len(got), -1).mean(axis=1))
        self._labels.append(batch.labels)

    def score(self) -> Score:
        """Return the area with its bootstrap interval."""
        return ranked(self.name, np.concatenate(self._errors), np.concatenate(self._labels) == 1)


def ranked(metric: str, scores: Array, positive: Array) -> Score:
    """Return the area of one ranking as a score, or the reason why there is none."""
    if positive.all() or not positive.any():
        return Score(metric=metric, value=None, reason="the data has one class only: nothing to rank", n=len(scores))
    if not np.isfinite(scores).all():
        return Score(metric=metric, value=None, reason=_NO_NUMBERS, n=len(scores))
    interval = auc_interval(scores, positive)
    return Score(
        metric=metric, value=interval.value, low=interval.low, high=interval.high, n=len(scores), interval="bootstrap"
    )
