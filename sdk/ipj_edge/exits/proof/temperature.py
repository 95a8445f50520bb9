"""Temperature scaling (Guo et al., arXiv 1706.04599): one number an exit that makes its confidences honest."""

from __future__ import annotations

import numpy as np

from ipj_edge.errors import DataError
from ipj_edge.exits.policy.softmax import logits_of
from ipj_edge.protocols import Array
from ipj_edge.values import Meaning

LOWEST, HIGHEST = 0.05, 20.0


def fit_temperature(output: Array, targets: Array, meaning: Meaning) -> float:
    """Return the temperature, within 0.05..20, with the least negative log likelihood of the targets.

    The likelihood is concave in 1/T and its slope is the mean of z_target − E[z], so bisection finds the optimum.
    As in Platt scaling, a share 1/(n + 1) of every target is spread over all classes: n samples that are all right do
    not prove a certain exit, and a temperature near 0 would push all its confidences to exactly 1. Samples whose
    outputs are not finite are left out.

    Args:
        output: One exit's output, of shape (n, classes).
        targets: Right classes, integers of shape (n,).
        meaning: What the output holds.

    Raises:
        DataError: no sample has finite outputs.
    """
    logits = logits_of(output, meaning)
    finite = np.isfinite(logits).all(axis=1)
    logits, targets = logits[finite], targets[finite]
    if not len(logits):
        raise DataError("no sample has finite outputs: nothing to fit a temperature to")
    logits -= logits.max(axis=1, keepdims=True)
    spread = 1 / (len(logits) + 1)
    wanted = (1 - spread) * logits[np.arange(len(logits)), targets].mean() + spread * logits.mean()
    low, high = np.log(1 / HIGHEST), np.log(1 / LOWEST)
    for _ in range(40):  # the last step is far below what a temperature means
        middle = (low + high) / 2
        low, high = (middle, high) if _mean_logit(logits, np.exp(middle)) < wanted else (low, middle)
    return float(np.exp(-(low + high) / 2))


def _mean_logit(logits: Array, inverse_temperature: float) -> float:
    """Return the mean over samples of the logit expected under softmax(logits / T)."""
    weights = np.exp(logits * inverse_temperature)
    return float(((weights * logits).sum(axis=1) / weights.sum(axis=1)).mean())
