"""Quality of class scores against labels: top-1, top-k and F1."""

from __future__ import annotations

import numpy as np

from ipj_edge.errors import DataError
from ipj_edge.metrics.bootstrap import bootstrap_interval
from ipj_edge.metrics.score import NO_CLASS, Batch, Score, rate
from ipj_edge.protocols import Array


def top1_correct(scores: Array, labels: Array) -> int:
    """Count samples whose largest score is at their label; one with a score that is no number is wrong.

    Args:
        scores: Shape (n, classes).
        labels: Integers of shape (n,).

    Raises:
        DataError: shapes do not fit, or a label is no class of the model.
    """
    return int(TopK(1).correct(scores, labels).sum())


def check_classes(scores: Array, labels: Array, what: str) -> None:
    """Check that scores are (n, classes) and labels n class numbers.

    Raises:
        DataError: they are not; says what they are.
    """
    if scores.ndim != 2 or labels.shape != (scores.shape[0],):
        raise DataError(
            f"{what} needs scores of shape (n, classes) and n labels; got {scores.shape} and {labels.shape}"
        )
    check_whole_labels(labels, what)
    if labels.size and (labels.min() < 0 or labels.max() >= scores.shape[1]):
        raise DataError(
            f"labels run from {labels.min()} to {labels.max()}, the model has classes 0 to {scores.shape[1] - 1}"
        )


def check_whole_labels(labels: Array, what: str) -> None:
    """Check that labels are whole numbers.

    Raises:
        DataError: they are not.
    """
    if labels.dtype.kind not in "iub":
        raise DataError(f"{what} needs integer labels; got {labels.dtype}")


class TopK:
    """Share of samples whose label is among the k largest scores; of equal scores the first ones count.

    Where a bundle answers with class numbers and no scores, top-1 is their share that equals the label.
    """

    is_rate, higher_is_better = True, True

    def __init__(self, k: int) -> None:
        self.name, self._k = f"top-{k}", k
        self._correct = self._n = 0

    def add(self, batch: Batch) -> None:
        """Count one batch."""
        self._correct += int(self.right(batch).sum())
        self._n += len(batch.labels)

    def right(self, batch: Batch) -> Array:
        """Return for every sample of a batch whether it counts as correct, bool of shape (n,).

        Raises:
            DataError: the outputs or labels are not what the metric needs.
        """
        numbers = None if batch.has_scores else batch.class_numbers()
        if self._k != 1 or numbers is None or batch.labels.ndim != 1:
            return self.correct(batch.scores(self.name), batch.labels)
        check_whole_labels(batch.labels, self.name)
        return np.asarray(numbers == batch.labels)

    def correct(self, scores: Array, labels: Array) -> Array:
        """Return for every sample whether it counts as correct, bool of shape (n,)."""
        check_classes(scores, labels, self.name)
        own = scores[np.arange(len(labels)), labels][:, None]
        before = (scores > own).sum(axis=1)
        ties_before = ((scores == own) & (np.arange(scores.shape[1]) < labels[:, None])).sum(axis=1)
        # A score that is no number is larger than nothing: such a sample is wrong.
        return (before + ties_before < self._k) & ~np.isnan(scores).any(axis=1)  # type: ignore[no-any-return]

    def score(self) -> Score:
        """Return the share with its Wilson interval."""
        return rate(self.name, self._correct, self._n)


class F1:
    """F1 over classes: macro (mean over the classes that occur) or, for two classes, of class 1.

    Keeps the confusion matrix alone. Resampling samples is resampling its cells.
    """

    is_rate, higher_is_better = False, True

    def __init__(self, average: str = "macro") -> None:
        self.name, self._average = ("f1" if average == "macro" else f"f1-{average}"), average
        self._cells: dict[tuple[int, int], int] = {}

    def add(self, batch: Batch) -> None:
        """Count one batch."""
        guesses = self._guesses(batch)
        pairs, counts = np.unique(np.stack([batch.labels, guesses]), axis=1, return_counts=True)
        for label, guess, count in zip(*pairs.tolist(), counts.tolist(), strict=True):
            self._cells[label, guess] = self._cells.get((label, guess), 0) + count

    def _guesses(self, batch: Batch) -> Array:
        numbers = None if batch.has_scores else batch.class_numbers()
        if numbers is not None and batch.labels.ndim == 1:
            check_whole_labels(batch.labels, self.name)
            if self._average == "binary" and not {*np.unique(numbers), *np.unique(batch.labels)} <= {0, 1}:
                raise DataError("f1-binary is for the classes 0 and 1, the model or the labels have others")
            # No class is negative but the one that stands for none.
            return np.maximum(numbers, NO_CLASS)
        scores = batch.scores(self.name)
        check_classes(scores, batch.labels, self.name)
        if self._average == "binary" and scores.shape[1] != 2:
            raise DataError(f"f1-binary is for two classes, the model has {scores.shape[1]}")
        # A score that is no number is larger than nothing: such a sample is a guess at no class.
        return np.where(np.isnan(scores).any(axis=1), NO_CLASS, scores.argmax(axis=1))

    def score(self) -> Score:
        """Return F1 with a bootstrap interval."""
        counts = np.array(list(self._cells.values()))
        pairs = np.array(list(self._cells), dtype=int)
        n = int(counts.sum())
        value = self._of(pairs, counts)
        interval = bootstrap_interval(value, lambda rng: self._of(pairs, rng.multinomial(n, counts / n)))
        return Score(
            metric=self.name, value=value, low=interval.low, high=interval.high, n=n, interval="bootstrap",
            higher_is_better=True,
        )  # fmt: skip

    def _of(self, pairs: Array, counts: Array) -> float:
        classes = int(pairs.max()) + 1
        labelled = np.bincount(pairs[:, 0], counts, classes)
        some = pairs[:, 1] != NO_CLASS
        guessed = np.bincount(pairs[some, 1], counts[some], classes)
        hits = pairs[:, 0] == pairs[:, 1]
        right = np.bincount(pairs[hits, 0], counts[hits], classes)
        occurs = labelled + guessed > 0
        if self._average == "binary":
            total = labelled[1:2].sum() + guessed[1:2].sum()
            return float(2 * right[1:2].sum() / total) if total else 0.0
        return float((2 * right[occurs] / (labelled + guessed)[occurs]).mean())
