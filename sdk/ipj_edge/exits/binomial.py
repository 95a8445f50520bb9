"""The binomial distribution, exact to about 13 digits up to a million trials. No normal approximation anywhere.

The probability of one outcome follows Loader, "Fast and Accurate Computation of Binomial Probabilities" (2000): the
saddle-point form avoids the difference of huge logarithms that costs a plain ``lgamma`` formula its digits.
"""

from __future__ import annotations

import math

import numpy as np

from ipj_edge.errors import DataError

_TERMS = 1024


def binomial_cdf(successes: int, n: int, p: float) -> float:
    """Return P(X ≤ successes) of X ~ Binomial(n, p).

    Raises:
        DataError: n is negative or p is outside 0..1.
    """
    if n < 0 or not 0 <= p <= 1:
        raise DataError(f"no binomial distribution of {n} trials with probability {p}")
    if successes < 0:
        return 0.0
    if successes >= n or p == 0:
        return 1.0
    if p == 1:
        return 0.0
    if successes <= n * p:
        return min(1.0, _lower_sum(successes, n, p))
    return max(0.0, 1.0 - _lower_sum(n - successes - 1, n, 1 - p))


def binomial_tail(successes: int, n: int, p: float) -> float:
    """Return P(X ≥ successes) of X ~ Binomial(n, p), without the cancellation of 1 − P(X < successes)."""
    return binomial_cdf(n - successes, n, 1 - p)


def share_bounds(successes: int, n: int, alpha: float) -> tuple[float, float]:
    """Return the exact two-sided interval of a share at a level of 1 − alpha (Clopper and Pearson 1934).

    Raises:
        DataError: no trials, or successes outside 0..n.
    """
    if n < 1 or not 0 <= successes <= n:
        raise DataError(f"no share of {successes} successes in {n} trials")
    return _lowest_share(successes, n, alpha / 2), 1 - _lowest_share(n - successes, n, alpha / 2)


def _lowest_share(successes: int, n: int, alpha: float) -> float:
    """Return the p at which as many successes or more have the probability alpha."""
    low, high = 0.0, 1.0
    if successes == 0:
        return low
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if binomial_tail(successes, n, middle) < alpha else (low, middle)
    return low


def _lower_sum(successes: int, n: int, p: float) -> float:
    """Sum P(X = i) for i = successes, successes − 1, … 0, which falls from its first term when successes ≤ n·p."""
    term = total = _probability(successes, n, p)
    odds = (1 - p) / p
    top = successes
    while top > 0 and term > total * 1e-18:
        i = np.arange(top, max(top - _TERMS, 0), -1, dtype=np.float64)
        terms = term * np.cumprod(i / (n - i + 1) * odds)
        total += float(terms.sum())
        term = float(terms[-1])
        top -= i.size
    return total


def _probability(x: int, n: int, p: float) -> float:
    """Return P(X = x) for 0 < p < 1."""
    if x == 0:
        return math.exp(n * math.log1p(-p))
    if x == n:
        return math.exp(n * math.log(p))
    exponent = _stirling_error(n) - _stirling_error(x) - _stirling_error(n - x)
    exponent -= _deviance(x, n * p) + _deviance(n - x, n * (1 - p))
    return math.exp(exponent) * math.sqrt(n / (2 * math.pi * x * (n - x)))


def _stirling_error(n: int) -> float:
    """Return log n! − log(√(2πn) (n/e)ⁿ)."""
    if n <= 15:
        return math.lgamma(n + 1) - (n + 0.5) * math.log(n) + n - 0.5 * math.log(2 * math.pi)
    square = float(n) * n
    inner = 1 / 1260 - (1 / 1680 - 1 / 1188 / square) / square
    return (1 / 12 - (1 / 360 - inner / square) / square) / n


def _deviance(x: float, mean: float) -> float:
    """Return x·log(x/mean) + mean − x, by a series where the two are close and the terms would cancel."""
    if abs(x - mean) >= 0.1 * (x + mean):
        return x * math.log(x / mean) + mean - x
    v = (x - mean) / (x + mean)
    total = (x - mean) * v
    power = 2 * x * v
    for j in range(1, 1000):
        power *= v * v
        step = power / (2 * j + 1)
        if total + step == total:
            break
        total += step
    return total
