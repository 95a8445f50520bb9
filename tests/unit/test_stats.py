import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from ipj_edge import stats
from ipj_edge.errors import DataError


@pytest.mark.parametrize("degrees", [0.5, 1, 2, 3, 4, 9, 18, 30, 100, 5000])
@pytest.mark.parametrize("probability", [0.001, 0.025, 0.3, 0.5, 0.75, 0.95, 0.975, 0.9995])
def test_the_t_quantile_is_scipys(probability, degrees):
    expected = scipy_stats.t.ppf(probability, degrees)
    assert stats.student_t_quantile(probability, degrees) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("probability", "degrees"), [(0, 3), (1, 3), (0.5, 0), (math.nan, 3), (0.9, math.nan)])
def test_a_t_quantile_outside_its_range_is_refused(probability, degrees):
    with pytest.raises(DataError):
        stats.student_t_quantile(probability, degrees)


@given(st.floats(0.0, 1e6), st.integers(2, 30), st.sampled_from([0.8, 0.95, 0.99]))
def test_the_half_width_of_a_mean_is_scipys(deviation, count, confidence):
    expected = scipy_stats.t(count - 1).ppf((1 + confidence) / 2) * deviation / math.sqrt(count)
    assert stats.t_half_width(deviation, count, confidence) == pytest.approx(expected, rel=1e-6, abs=1e-9)


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_wilson_interval_is_scipys(case):
    successes, n = case
    got = stats.wilson_interval(successes, n)
    expected = scipy_stats.binomtest(successes, n).proportion_ci(method="wilson")
    assert (got.low, got.high) == pytest.approx((expected.low, expected.high), rel=1e-9, abs=1e-12)
    assert 0 <= got.low <= got.value <= got.high <= 1


@pytest.mark.parametrize(("successes", "n"), [(0, 0), (-1, 3), (4, 3)])
def test_a_share_that_cannot_be_is_refused(successes, n):
    with pytest.raises(DataError):
        stats.wilson_interval(successes, n)


def test_the_t_interval_of_five_windows_covers_what_it_claims():
    draws = np.random.default_rng(7).normal(10, 1, size=(4000, 5))
    half = stats.t_half_width(1.0, 5) * draws.std(axis=1, ddof=1)
    covered = np.mean(np.abs(draws.mean(axis=1) - 10) <= half)
    assert 0.94 <= covered <= 0.96


def test_one_value_far_off_is_an_outlier():
    assert stats.outliers([10.0, 10.1, 9.9, 10.05, 14.0]) == (4,)
    assert stats.outliers([10.0, 10.1, 9.9]) == ()
    assert stats.outliers([10.0] * 8) == ()


def test_a_rise_is_told_from_noise():
    noise = np.random.default_rng(3).normal(0, 0.1, 20)
    rising = stats.trend(list(5 + 0.2 * np.arange(20) + noise))
    level = stats.trend(list(5 + noise))
    assert rising is not None
    assert rising.significant
    assert rising.change == pytest.approx(0.2 * 19, rel=0.1)
    assert level is not None
    assert not level.significant
    assert stats.trend([1.0, 2.0, 3.0]) is None


def test_the_trends_significance_is_scipys():
    rng = np.random.default_rng(11)
    for _ in range(50):
        values = rng.normal(0, 1, 8) + 0.25 * np.arange(8)
        got = stats.trend(list(values))
        assert got is not None
        assert got.significant == (scipy_stats.linregress(np.arange(8), values).pvalue < 0.05)
