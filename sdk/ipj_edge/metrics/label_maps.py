"""Quality of label maps: pixel accuracy and mean intersection over union (Long et al. 2015, section 5)."""

from __future__ import annotations

import numpy as np

from ipj_edge.errors import DataError
from ipj_edge.metrics.bootstrap import RESAMPLES, bootstrap_interval, ratio_interval
from ipj_edge.metrics.classification import check_whole_labels
from ipj_edge.metrics.score import Batch, Score, counted
from ipj_edge.protocols import Array

_NOTHING = "no label is counted"
# Resampling counts of 100,000 samples and classes a thousand times takes seconds.
_WORK = 100_000_000


class PixelAccuracy:
    """Share of the places that hold their label; the interval resamples samples, since neighbours are alike."""

    name, is_rate, higher_is_better = "pixel-accuracy", True, True

    def __init__(self) -> None:
        self._right: list[Array] = []
        self._counts: list[Array] = []

    def add(self, batch: Batch) -> None:
        """Count one batch."""
        guesses, labels, known = _places(batch, self.name)
        self._right.append(((guesses == labels) & known).sum(axis=1))
        self._counts.append(known.sum(axis=1))

    def score(self) -> Score:
        """Return the share with its bootstrap interval."""
        right, counts = np.concatenate(self._right), np.concatenate(self._counts)
        some = counts > 0
        if not some.any():
            return Score(metric=self.name, value=None, reason=_NOTHING, n=0, is_rate=True)
        interval = ratio_interval(right[some], counts[some])
        return Score(
            metric=self.name, value=interval.value, low=interval.low, high=interval.high, n=int(some.sum()),
            interval="bootstrap", is_rate=True,
        )  # fmt: skip


class MeanIou:
    """Mean over the classes that occur of |answered ∩ labelled| / |answered ∪ labelled|, over all samples."""

    name, is_rate, higher_is_better = "mean-iou", False, True

    def __init__(self) -> None:
        # Right, answered and labelled places of every class, a sample.
        self._samples: list[dict[int, tuple[int, int, int]]] = []

    def add(self, batch: Batch) -> None:
        """Count one batch."""
        guesses, labels, known = _places(batch, self.name)
        self._samples += [_by_class(g[k], w[k]) for g, w, k in zip(guesses, labels, known, strict=True)]

    def score(self) -> Score:
        """Return the mean with its bootstrap interval over samples."""
        classes = sorted({one for sample in self._samples for one in sample})
        if not classes:
            return Score(metric=self.name, value=None, reason=_NOTHING, n=0)
        counts = np.zeros((len(self._samples), len(classes), 3))
        for row, sample in enumerate(self._samples):
            for column, one in enumerate(classes):
                counts[row, column] = sample.get(one, (0, 0, 0))
        n = len(counts)

        def resampled(rng: np.random.Generator) -> float:
            return _mean_iou(np.tensordot(np.bincount(rng.integers(0, n, n), minlength=n), counts, 1))

        value = _mean_iou(counts.sum(axis=0))
        resamples = max(100, min(RESAMPLES, _WORK // counts.size))
        interval = bootstrap_interval(value, resampled, resamples=resamples)
        return Score(metric=self.name, value=value, low=interval.low, high=interval.high, n=n, interval="bootstrap")


def _mean_iou(counts: Array) -> float:
    right, answered, labelled = counts.T
    union = answered + labelled - right
    return float((right[union > 0] / union[union > 0]).mean()) if (union > 0).any() else 0.0


def _by_class(guesses: Array, labels: Array) -> dict[int, tuple[int, int, int]]:
    """Return right, answered and labelled places of every class of one sample."""
    each = [
        dict(zip(*(part.tolist() for part in np.unique(values, return_counts=True)), strict=True))
        for values in (guesses[guesses == labels], guesses, labels)
    ]
    # A negative answer is none: a score there was no number.
    classes = {one for found in each for one in found if one >= 0}
    return {one: (each[0].get(one, 0), each[1].get(one, 0), each[2].get(one, 0)) for one in classes}


def _places(batch: Batch, metric: str) -> tuple[Array, Array, Array]:
    """Return answered classes, labels, and where labels count, each of shape (n, places).

    Raises:
        DataError: the labels are no maps, or no output fits them.
    """
    labels = batch.labels
    if labels.ndim < 2:
        raise DataError(f"{metric} needs label maps, one a sample; got labels of shape {labels.shape}")
    check_whole_labels(labels, metric)
    guesses, known = batch.classes(metric), counted(labels)
    rows = (len(labels), -1)
    return guesses.reshape(rows), labels.astype(np.int64).reshape(rows), known.reshape(rows)
