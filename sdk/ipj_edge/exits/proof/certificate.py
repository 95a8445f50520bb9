"""The proof: risk is at most epsilon at a confidence of 1 − delta, for data like the samples it was tested on.

Learn then test (Angelopoulos et al., arXiv 2110.01052) with a fixed sequence of hypotheses: a path of policies, chosen
without a look at the test samples, is walked from the safest on. Each step is tested at delta, the first failure ends
the walk and the last policy that passed is proven. The chance that a policy is proven that breaks its promise is at
most delta, however many steps there were. The p-values are exact for losses of 0 or 1 and valid at every sample size
for losses within 0..1; there is no normal approximation, which would prove zero risk from a handful of lucky samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from ipj_edge.errors import DataError
from ipj_edge.exits.binomial import binomial_cdf
from ipj_edge.exits.policy.values import Method
from ipj_edge.exits.proof.problem import departures
from ipj_edge.protocols import Array

MOST_SAMPLES = 10_000_000


class Examined(NamedTuple):
    """One policy tested: its thresholds, and what its loss on the test samples says."""

    thresholds: Array
    risk: float
    errors: int | None
    p_value: float
    method: Method


class Walk(NamedTuple):
    """The walk along a path: the last policy that passed, and the one that failed and ended it; None where none did."""

    accepted: Examined | None
    failed: Examined | None


def split(strata: Array, share: float, seed: int) -> tuple[Array, Array]:
    """Split samples into two parts, each with its share of every stratum.

    Every sample has the same chance to be in the first part: shuffle, sort by stratum, then take evenly spaced places
    with a random start (systematic sampling).

    Args:
        strata: Class of every sample, of shape (n,).
        share: Share of the first part, 0..1.
        seed: Seed of the shuffle.

    Returns:
        Ascending indices of the first part and of the second.
    """
    random = np.random.default_rng(seed)
    order = random.permutation(len(strata))
    order = order[np.argsort(strata[order], kind="stable")]
    places = np.floor(np.arange(len(strata) + 1) * share + random.random())
    first = order[np.diff(places) > 0]
    inside = np.zeros(len(strata), dtype=bool)
    inside[first] = True
    return np.flatnonzero(inside), np.flatnonzero(~inside)


def walk(scores: Array, losses: Array, path: Iterable[Array], epsilon: float, delta: float) -> Walk:
    """Test policies in order until the first failure.

    Args:
        scores: Scores of the test samples, of shape (n, exits − 1).
        losses: Their losses within 0..1, of shape (n, exits).
        path: Thresholds, safest first, chosen without these samples.
        epsilon: Largest risk allowed.
        delta: Level of the test.
    """
    accepted, before = None, np.empty(0)
    method = loss_method(losses)
    for thresholds in path:
        gone = departures(np.greater_equal(scores, thresholds))
        if np.array_equal(gone, before):
            continue  # the same policy to these samples: the stricter of the two stays
        examined, before = _examined(thresholds, gone, losses, epsilon, method), gone
        if not examined.p_value <= delta:
            return Walk(accepted, examined)
        accepted = examined
    return Walk(accepted, None)


def examine(scores: Array, losses: Array, thresholds: Array, epsilon: float) -> Examined:
    """Test one policy that was chosen without these samples; see `walk`."""
    gone = departures(np.greater_equal(scores, thresholds))
    return _examined(thresholds, gone, losses, epsilon, loss_method(losses))


def _examined(thresholds: Array, gone: Array, losses: Array, epsilon: float, method: Method) -> Examined:
    seen = losses[np.arange(len(losses)), gone]
    errors = int(seen.sum()) if method == "exact-binomial" else None
    return Examined(thresholds, float(seen.mean()), errors, p_value(seen, epsilon, method), method)


def loss_method(losses: Array) -> Method:
    """Return the test that fits these losses.

    Raises:
        DataError: a loss is outside 0..1.
    """
    if not (losses.size and (losses >= 0).all() and (losses <= 1).all()):
        raise DataError("losses must lie within 0..1: nothing can be proven of others")
    return "exact-binomial" if np.isin(losses, (0.0, 1.0)).all() else "hoeffding-bentkus"


def p_value(losses: Array, epsilon: float, method: Method) -> float:
    """Return the p-value of "the risk is above epsilon" from independent losses of shape (n,)."""
    n = len(losses)
    if method == "exact-binomial":
        return binomial_cdf(int(losses.sum()), n, epsilon)
    return hoeffding_bentkus(math.fsum(losses), n, epsilon)  # exact, so that its ceiling is not one too low


def hoeffding_bentkus(total: float, n: int, epsilon: float) -> float:
    """Return the p-value for losses within 0..1 (Bates et al., arXiv 2101.02703): the better of two valid bounds.

    Args:
        total: Sum of the losses.
        n: Number of samples.
        epsilon: Largest risk allowed, above 0 and below 1.
    """
    mean = min(total / n, epsilon)
    hoeffding = math.exp(-n * _divergence(mean, epsilon))
    return min(1.0, hoeffding, math.e * binomial_cdf(math.ceil(total), n, epsilon))


def samples_needed(epsilon: float, delta: float, risk: float = 0.0, method: Method = "exact-binomial") -> int | None:
    """Return the fewest test samples that prove a risk of at most epsilon when their mean loss is ``risk``.

    For 0/1 losses, the share of errors rounded up to a whole number of them; without errors that is the smallest n
    with (1 − epsilon)ⁿ ≤ delta, a little below log(1/delta)/epsilon.

    Args:
        epsilon: Largest risk allowed, above 0 and below 1.
        delta: Level of the test, above 0 and below 1.
        risk: Mean loss expected.
        method: The test that is to pass.

    Returns:
        The number of samples, or None where no number up to ten million would do.
    """
    if risk >= epsilon:
        return None
    if risk <= 0:
        return _trials_for(0, epsilon, delta)
    if method == "hoeffding-bentkus":
        return _bisect(lambda n: hoeffding_bentkus(risk * n, n, epsilon) <= delta, 1)
    errors = _bisect(lambda errors: _trials_for(errors, epsilon, delta) * risk <= errors, 1)
    if errors is None:
        return None
    # With n samples, ceil(risk·n) of them are errors: at least this many samples make it `errors`.
    needed = max(_trials_for(errors, epsilon, delta), math.floor((errors - 1) / risk) + 1)
    return needed if needed <= MOST_SAMPLES else None


def _bisect(enough: Callable[[int], bool], low: int) -> int | None:
    """Return the smallest number from low on that is enough, where all after it are; None above ten million."""
    high = low
    while not enough(high):
        low, high = high, 2 * high
        if high > MOST_SAMPLES:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _trials_for(errors: int, epsilon: float, delta: float) -> int:
    """Return the smallest n with P(Binomial(n, epsilon) ≤ errors) ≤ delta."""
    low, high = errors, max(1, math.ceil((errors + 1) / epsilon))
    while binomial_cdf(errors, high, epsilon) > delta:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if binomial_cdf(errors, middle, epsilon) > delta else (low, middle)
    return high


def _divergence(a: float, b: float) -> float:
    """Return a·log(a/b) + (1 − a)·log((1 − a)/(1 − b)) with 0·log 0 = 0."""
    first = a * math.log(a / b) if a > 0 else 0.0
    second = (1 - a) * math.log((1 - a) / (1 - b)) if a < 1 else 0.0
    return first + second
