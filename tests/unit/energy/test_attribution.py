import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from intervals import mean_interval

from ipj_edge.energy import per_inference
from ipj_edge.errors import ConfigError
from ipj_edge.values import Reading


def window(joules, seconds=1.0, **changes):
    values = {
        "joules": joules,
        "reason": "" if joules is not None else "the probe died",
        "seconds": seconds,
        "provenance": "measured",
        "boundary": "package",
        "probe": "rapl",
        "update_interval_s": 0.001,
        "quantum_j": 61e-6,
    }
    return Reading(**(values | changes))


ENERGIES = st.lists(st.floats(0.001, 1e4), min_size=1, max_size=25)


@given(ENERGIES, st.data())
def test_no_figure_is_negative_or_not_a_number(energies, data):
    counts = data.draw(st.lists(st.integers(0, 1000), min_size=len(energies), max_size=len(energies)))
    idle = data.draw(st.lists(st.floats(0, 1e3), max_size=4))
    result = per_inference([window(e) for e in energies], counts, [window(e) for e in idle])
    figures = [result.value, result.low, result.high]
    if result.net is not None:
        figures += [result.net.value, result.net.low, result.net.high, result.net.idle_w]
        assert (result.net.value is None) == bool(result.net.reason)
    assert all(figure is None or (math.isfinite(figure) and figure >= 0) for figure in figures)
    assert (result.value is None) == bool(result.reason)
    if result.low is not None:
        assert result.low <= result.value <= result.high


@given(st.lists(st.floats(1.0, 100.0), min_size=5, max_size=25), st.integers(1, 1000))
def test_with_equal_counts_it_is_the_mean_and_students_t_of_the_windows(energies, n):
    sharp = {"update_interval_s": 0.0, "quantum_j": 0.0}
    result = per_inference([window(e, **sharp) for e in energies], [n] * len(energies))
    expected = mean_interval([e / n for e in energies])
    assert result.value == pytest.approx(expected.value)
    assert result.high - result.value == pytest.approx(expected.high - expected.value, rel=1e-6, abs=1e-12)
    assert result.windows == len(energies)
    assert result.inferences == n * len(energies)


@given(st.floats(0.01, 10.0), st.lists(st.integers(1, 500), min_size=5, max_size=20))
def test_inferences_that_cost_the_same_have_no_spread_whatever_the_counts(joules, counts):
    result = per_inference([window(joules * n, quantum_j=0.0, update_interval_s=0.0) for n in counts], counts)
    assert result.value == pytest.approx(joules)
    assert result.high - result.low == pytest.approx(0.0, abs=1e-9 * joules)


def test_the_interval_covers_the_truth_as_often_as_it_claims():
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(600):
        counts = rng.integers(80, 120, 6)
        energies = counts * 0.05 * rng.normal(1, 0.02, 6)
        result = per_inference([window(float(e)) for e in energies], [int(n) for n in counts])
        hits += result.low <= 0.05 <= result.high
    assert 0.92 <= hits / 600 <= 0.98


def test_the_interval_is_never_smaller_than_what_the_ends_of_the_windows_lose():
    steps = [window(3600.0, 600.0, quantum_j=360.0, update_interval_s=1.0)] * 6
    result = per_inference(steps, [1000] * 6)
    lost = 2 * math.sqrt(6 * ((1.0 * 6.0) ** 2 + 360.0**2) / 6) / 6000
    assert result.high - result.value == pytest.approx(lost)


def test_few_windows_add_both_terms():
    pair = [window(10.0, quantum_j=3.0), window(11.0, quantum_j=3.0)]
    alone = per_inference([window(10.0, quantum_j=0.0), window(11.0, quantum_j=0.0)], [1, 1])
    both = per_inference(pair, [1, 1])
    assert both.high > alone.high


def test_one_window_has_a_value_and_no_interval():
    result = per_inference([window(10.0)], [100])
    assert result.value == pytest.approx(0.1)
    assert result.low is None
    assert result.high is None
    assert "one window" in result.note


def test_the_gain_error_stays_apart_and_does_not_shrink():
    few = per_inference([window(10.0 + 0.01 * i, accuracy=0.1) for i in range(5)], [1] * 5)
    many = per_inference([window(10.0 + 0.01 * (i % 5), accuracy=0.1) for i in range(25)], [1] * 25)
    assert few.accuracy == many.accuracy == 0.1
    assert many.high - many.low < few.high - few.low < 0.1 * 10


def test_net_is_gross_less_idle_and_its_interval_holds_both():
    work = [window(30.0 + 0.1 * (-1) ** i, 2.0) for i in range(6)]
    result = per_inference(work, [100] * 6, [window(10.0, 2.0), window(11.0, 2.0)])
    assert result.net.idle_w == pytest.approx(5.25)
    assert result.net.value == pytest.approx((30.0 - 10.5) / 100)
    gross_half = result.high - result.value
    expected = math.hypot(gross_half, 2 * 0.25 * 2 / 100)
    assert result.net.high - result.net.value == pytest.approx(expected, rel=1e-3)


def test_work_that_draws_no_more_than_idle_is_not_told_from_it():
    result = per_inference([window(10.0 + i % 2) for i in range(6)], [10] * 6, [window(10.0), window(11.0)])
    assert result.net.value is None
    assert "not distinguishable from idle" in result.net.reason
    assert result.value is not None


@pytest.mark.parametrize("idle", [[], [10.0], [10.0, None]])
def test_net_needs_idle_on_both_sides(idle):
    result = per_inference([window(30.0)] * 5, [1] * 5, [window(one) for one in idle])
    assert result.net.value is None
    assert "before and one after" in result.net.reason


def test_windows_without_a_figure_are_named_and_the_others_used():
    result = per_inference([window(10.0), window(None), window(10.2), window(10.1)], [1] * 4)
    assert result.windows == 3
    assert result.value == pytest.approx(10.1)
    assert "1 of 4 windows have no figure, window 2: the probe died" in result.note


def test_no_window_with_a_figure_gives_the_reason():
    result = per_inference([window(None), window(None)], [5, 5])
    assert (result.value, result.reason) == (None, "the probe died")


def test_no_inferences_give_a_reason_not_a_division():
    result = per_inference([window(10.0), window(10.0)], [0, 0])
    assert result.value is None
    assert "no inference" in result.reason


def test_an_outlier_is_shown_and_kept():
    result = per_inference([window(e) for e in (10.0, 10.1, 9.9, 10.05, 20.0)], [1] * 5)
    assert result.value == pytest.approx(12.01)
    assert "window 5 is +99.0 % off the median (kept)" in result.note


def test_a_machine_that_warms_up_is_noticed():
    warming = per_inference([window(10.0 + 0.1 * i) for i in range(10)], [1] * 10)
    steady = per_inference([window(10.0 + 0.1 * (i % 2)) for i in range(10)], [1] * 10)
    assert "drifts by +8.6 %" in warming.note
    assert "drift" not in steady.note


@pytest.mark.parametrize(("counts", "text"), [([1], "one inference count"), ([1, -1], "negative")])
def test_counts_that_do_not_fit_are_refused(counts, text):
    with pytest.raises(ConfigError, match=text):
        per_inference([window(1.0), window(1.0)], counts)


@pytest.mark.parametrize("other", [{"probe": "nvml"}, {"boundary": "gpu"}, {"provenance": "modelled"}])
def test_joules_of_different_probes_do_not_mix(other):
    with pytest.raises(ConfigError, match="do not mix"):
        per_inference([window(1.0), window(1.0, **other)], [1, 1])
    with pytest.raises(ConfigError, match="do not mix"):
        per_inference([window(1.0)], [1], [window(1.0, **other)])
