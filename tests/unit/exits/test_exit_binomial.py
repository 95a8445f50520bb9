import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from ipj_edge.errors import DataError
from ipj_edge.exits.binomial import binomial_cdf, binomial_tail, share_bounds


@pytest.mark.parametrize("n", [1, 2, 16, 299, 1185, 75_000, 1_000_000])
@pytest.mark.parametrize("p", [1e-6, 0.001, 0.01, 0.3, 0.5, 0.97])
@pytest.mark.parametrize("deviations", [-6.0, -2.5, -0.5, 0.0, 1.0, 4.0])
def test_the_tail_is_scipys(n: int, p: float, deviations: float) -> None:
    k = min(n, max(0, math.floor(n * p + deviations * math.sqrt(n * p * (1 - p)))))
    # scipy itself is off by some 1e-11 for rare outcomes of a million trials.
    assert binomial_cdf(k, n, p) == pytest.approx(scipy.stats.binom.cdf(k, n, p), rel=2e-10, abs=1e-290)
    assert binomial_tail(k, n, p) == pytest.approx(scipy.stats.binom.sf(k - 1, n, p), rel=2e-10, abs=1e-290)


@given(st.integers(1, 40), st.floats(0.01, 0.99), st.data())
def test_the_tail_is_the_sum_of_exact_fractions(n: int, p: float, data: st.DataObject) -> None:
    from fractions import Fraction

    k = data.draw(st.integers(0, n))
    exact = Fraction(p)
    total = sum(math.comb(n, i) * exact**i * (1 - exact) ** (n - i) for i in range(k + 1))
    assert binomial_cdf(k, n, p) == pytest.approx(float(total), rel=1e-12)


def test_the_ends_of_the_range() -> None:
    assert binomial_cdf(-1, 10, 0.5) == 0
    assert binomial_cdf(10, 10, 0.5) == 1
    assert binomial_cdf(3, 10, 0.0) == 1
    assert binomial_cdf(3, 10, 1.0) == 0
    assert binomial_tail(0, 10, 0.3) == 1
    assert binomial_cdf(0, 0, 0.3) == 1
    assert binomial_cdf(0, 1_000_000, 0.01) == 0  # underflows: as certain as floats can say


@pytest.mark.parametrize(("n", "p"), [(-1, 0.5), (5, 1.5), (5, math.nan)])
def test_no_distribution_is_an_error(n: int, p: float) -> None:
    with pytest.raises(DataError, match="no binomial distribution"):
        binomial_cdf(1, n, p)


@pytest.mark.parametrize(("x", "n"), [(0, 30), (3, 40), (750, 750), (31, 4500)])
def test_share_bounds_are_clopper_and_pearsons(x: int, n: int) -> None:
    expected = scipy.stats.binomtest(x, n).proportion_ci(0.95, method="exact")
    assert share_bounds(x, n, 0.05) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_zero_errors_in_thirty_bound_the_risk_at_nine_and_a_half_percent() -> None:
    # The normal approximation says 0 here, which is why it must not certify.
    assert share_bounds(0, 30, 0.1)[1] == pytest.approx(0.0950, abs=1e-4)


def test_no_share_without_trials() -> None:
    with pytest.raises(DataError, match="no share"):
        share_bounds(1, 0, 0.05)


def test_the_distribution_adds_up() -> None:
    n, p = 57, 0.13
    steps = np.diff([binomial_cdf(k, n, p) for k in range(-1, n + 1)])
    assert (steps >= 0).all()
    assert steps @ np.arange(n + 1) == pytest.approx(n * p)
