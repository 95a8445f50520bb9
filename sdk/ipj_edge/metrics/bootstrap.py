"""Intervals for figures that are no share of successes: resample the samples (Efron and Tibshirani 1993)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ipj_edge.protocols import Array
from ipj_edge.values import Interval

RESAMPLES = 1000
# Resampling a million samples a thousand times would take minutes for a digit nobody reads.
_WORK = 20_000_000


def bootstrap_interval(
    value: float, resampled: Callable[[np.random.Generator], float], *, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Return a value with the percentile interval of its resamples, 95 %.

    Right for hundreds of samples; five windows it serves badly (use Student's t there).

    Args:
        value: The figure on all samples.
        resampled: Returns the figure on one resample.
        resamples: How many.
        seed: The same data gives the same interval.
    """
    rng = np.random.default_rng(seed)
    figures = [resampled(rng) for _ in range(resamples)]
    low, high = np.percentile(figures, (2.5, 97.5))
    return Interval(value=value, low=min(value, float(low)), high=max(value, float(high)))


def ratio_interval(numerators: Array, denominators: Array | None = None) -> Interval:
    """Return Σa/Σb over samples with its bootstrap interval; b is 1 where it is not given: then it is the mean.

    Args:
        numerators: One value a sample, shape (n,).
        denominators: One value a sample, shape (n,), or None.
    """
    weights = np.ones(len(numerators)) if denominators is None else denominators
    n = len(numerators)

    def resampled(rng: np.random.Generator) -> float:
        picked = rng.integers(0, n, n)
        return float(numerators[picked].sum() / weights[picked].sum())

    value = float(numerators.sum() / weights.sum())
    return bootstrap_interval(value, resampled, resamples=max(100, min(RESAMPLES, _WORK // n)))
