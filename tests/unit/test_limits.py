"""Numbers that ask for a run without an end, or for more than there is, are refused before anything runs."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipj_edge import limits
from ipj_edge.benchmark import BenchOptions, Scenario
from ipj_edge.errors import ConfigError
from ipj_edge.limits import Range
from ipj_edge.tuning.pricing import PricingOptions
from ipj_edge.units import seconds
from ipj_edge.values import ProbeOptions, Settings

RANGES = [value for value in vars(limits).values() if isinstance(value, Range)]


@given(st.sampled_from(RANGES), st.sampled_from([math.nan, math.inf, -math.inf, 1e99, -1e99, -1, "7", None, True]))
def test_no_range_holds_what_is_no_number_of_its_kind(within: Range, value: Any) -> None:
    if value is None:
        within.check("it", value)
        return
    with pytest.raises(ConfigError, match=r"it is .*: expected a"):
        within.check("it", value)


@given(st.sampled_from(RANGES), st.floats(0, 1))
def test_a_range_holds_its_ends_and_what_is_between(within: Range, share: float) -> None:
    value = within.low + share * (within.high - within.low)
    within.check("it", int(value) if within.whole else min(value, within.high))


@pytest.mark.parametrize(
    ("kind", "given_value"),
    [
        (Settings, {"threads": 100_000}),
        (Settings, {"threads": 0}),
        (Scenario, {"name": "offline", "samples_per_query": 999_999_999}),
        (Scenario, {"every_s": math.nan}),
        (Scenario, {"every_s": 1e99}),
        (BenchOptions, {"window_s": math.nan}),
        (BenchOptions, {"window_s": math.inf}),
        (BenchOptions, {"windows": 10_000_000_000}),
        (BenchOptions, {"max_s": math.inf}),
        (PricingOptions, {"window_s": math.inf}),
        (ProbeOptions, {"core_power_w": math.nan}),
        (ProbeOptions, {"voltage_v": -3.3}),
    ],
)
def test_a_request_with_an_impossible_number_cannot_be_made(kind: Any, given_value: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="expected a"):
        kind(**given_value)


def test_a_bare_number_is_seconds_and_no_time_is_endless() -> None:
    assert seconds("2") == 2.0
    assert seconds("200ms") == pytest.approx(0.2)
    for text in ("0", "0s", "1e999", "nan", "inf", "-1s", "5J", ""):
        with pytest.raises(ConfigError):
            seconds(text)
