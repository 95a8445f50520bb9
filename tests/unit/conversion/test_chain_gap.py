"""How far the stages are from the unsplit program, numbers or not."""

from __future__ import annotations

import math

import numpy as np

from ipj_edge.conversion.prove.trial_child import gap

ONE = np.array([1.0, -2.0, np.inf, np.nan], np.float32)


def test_equal_answers_are_no_way_apart_whatever_they_hold() -> None:
    assert gap(ONE, ONE) == 0.0


def test_nan_or_infinity_in_one_answer_alone_is_as_far_as_can_be_and_json_can_say_it() -> None:
    for at in (0, 2):
        other = ONE.copy()
        other[at] = np.nan
        for found in (gap(ONE, other), gap(other, ONE)):
            assert found > 1e300
            assert math.isfinite(found)


def test_numbers_are_as_far_apart_as_they_are() -> None:
    assert gap(np.float32([1, -2]), np.float32([1, -2.5])) == 0.5
