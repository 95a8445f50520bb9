"""What stages add, from whole inferences that were measured; and what a policy's shares then cost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipj_edge.errors import ConfigError
from ipj_edge.exits import StageCost, StageCosts
from ipj_edge.exits.proof.costs import check_costs, expected_cost, never_cost, stage_costs

SECONDS = st.floats(1e-7, 1.0)


@given(st.lists(SECONDS, min_size=2, max_size=6), SECONDS, st.data())
def test_costs_weighed_by_the_shares_are_the_mean_of_what_was_measured(
    steps: list[float], unsplit: float, data: st.DataObject
) -> None:
    depths = np.cumsum(steps)
    costs = stage_costs("s", "wall time", [*depths, unsplit], 1)
    leavers = np.array(data.draw(st.lists(st.integers(1, 99), min_size=len(steps), max_size=len(steps))))
    assert expected_cost(costs, leavers) == pytest.approx(depths @ leavers / leavers.sum())
    assert never_cost(costs) == pytest.approx(unsplit)


@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=3, max_size=6), st.integers(2, 64))
def test_two_batch_sizes_tell_a_call_from_a_row(parts: list[tuple[float, float]], rows: int) -> None:
    fixed, per_row = np.array(parts).T
    depths = (np.cumsum(fixed[:-1]), np.cumsum(per_row[:-1]))
    one, many = [np.append(depths[0] + b * depths[1], fixed[-1] + b * per_row[-1]) for b in (1, rows)]
    costs = stage_costs("s", "wall time", [*one, *many], rows)
    found = [(each.fixed, each.per_row) for each in (*costs.stages, costs.unsplit or pytest.fail("no unsplit"))]
    np.testing.assert_allclose(found, parts, rtol=1e-6, atol=1e-9)


def test_an_exit_measured_no_dearer_than_the_one_before_adds_nothing() -> None:
    costs = stage_costs("s", "wall time", [2.0, 1.9, 3.0, 2.5], 1)
    assert [each.per_row for each in costs.stages] == [2.0, 0.0, 1.0]
    check_costs(costs, 3)


def test_a_batch_that_costs_less_than_its_rows_apart_has_a_fixed_part() -> None:
    costs = stage_costs("J", "modelled", [1.0, 1.5, 1.5, 4.0, 5.0, 5.0], 8)
    assert costs.stages[0].fixed == pytest.approx(1 - 3 / 7)
    assert expected_cost(costs, np.array([0, 8]), batch=8) == pytest.approx(5.0 / 8)


def test_stages_that_cost_nothing_are_refused() -> None:
    free = StageCosts(unit="MAC", source="counted", stages=(StageCost(fixed=0, per_row=0),) * 2)
    with pytest.raises(ConfigError, match="no stage costs anything"):
        check_costs(free, 2)
