"""Quality of answers against labels."""

from __future__ import annotations

from ipj_edge.errors import DataError
from ipj_edge.protocols import Array


def top1_correct(scores: Array, labels: Array) -> int:
    """Count samples whose largest score is at their label.

    Args:
        scores: Shape (n, classes).
        labels: Integers of shape (n,).

    Raises:
        DataError: shapes do not fit, or a label is no class of the model.
    """
    if scores.ndim != 2 or labels.shape != (scores.shape[0],):
        raise DataError(f"top-1 needs scores of shape (n, classes) and n labels; got {scores.shape} and {labels.shape}")
    if labels.size and (labels.min() < 0 or labels.max() >= scores.shape[1]):
        raise DataError(
            f"labels run from {labels.min()} to {labels.max()}, the model has classes 0 to {scores.shape[1] - 1}"
        )
    return int((scores.argmax(axis=1) == labels).sum())
