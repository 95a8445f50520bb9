import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipj_edge.errors import DataError
from ipj_edge.exits.proof.problem import Problem, cut_points, departures
from ipj_edge.exits.proof.search import Searched, descend, enumerate_thresholds, front, search
from ipj_edge.protocols import Array


@st.composite
def problems(draw: st.DrawFn, exits: tuple[int, ...] = (2, 3, 4, 5), most: int = 9) -> Problem:
    """Small problems with many equal scores, some samples that cannot leave, 0/1 or fractional losses."""
    k, n = draw(st.sampled_from(exits)), draw(st.integers(1, most))
    score = st.one_of(st.integers(0, 4).map(lambda i: i / 4), st.just(-math.inf))
    loss = draw(st.sampled_from([st.integers(0, 1).map(float), st.floats(0, 1, width=16)]))
    scores = draw(st.lists(score, min_size=n * k, max_size=n * k))
    losses = np.reshape(draw(st.lists(loss, min_size=n * k, max_size=n * k)), (n, k))
    losses[:, -1] *= draw(st.integers(0, 1))
    steps = draw(st.lists(st.integers(1, 9), min_size=k, max_size=k))
    return Problem(np.reshape(scores, (n, k)), losses, np.cumsum(steps).astype(float))


def brute_force(problem: Problem, epsilon: float) -> float:
    """Return the least mean cost over every threshold there is, tried one sample at a time."""
    choices = [[math.inf, *sorted({s for s in column if s > -math.inf})] for column in problem.scores.T.tolist()]
    best = math.inf
    for thresholds in itertools.product(*choices):
        cost = loss = 0.0
        for row in range(problem.n):
            exit_index = next((k for k, t in enumerate(thresholds) if problem.scores[row, k] >= t), len(thresholds))
            cost += problem.leaving[exit_index]
            loss += problem.losses[row, exit_index]
        if loss <= epsilon * problem.n + 1e-9:
            best = min(best, cost / problem.n)
    return best


EPSILONS = st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0])


@settings(max_examples=150, deadline=None)
@given(problem=problems(exits=(2, 3, 4), most=8), epsilon=EPSILONS)
def test_the_search_finds_what_brute_force_finds(problem: Problem, epsilon: float) -> None:
    best = brute_force(problem, epsilon)
    for found in (search(problem, epsilon), enumerate_thresholds(problem, epsilon)):
        if math.isinf(best):
            assert np.isinf(found.thresholds).all()
        else:
            assert found.cost == pytest.approx(best)
            assert found.loss <= epsilon + 1e-9


@settings(max_examples=40, deadline=None)
@given(problem=problems(exits=(5,), most=5), epsilon=EPSILONS)
def test_five_exits_too(problem: Problem, epsilon: float) -> None:
    best = brute_force(problem, epsilon)
    found = search(problem, epsilon)
    assert found.cost == pytest.approx(best if math.isfinite(best) else found.cost)


@settings(max_examples=60, deadline=None)
@given(problem=problems(exits=(2,), most=30), epsilon=EPSILONS)
def test_descent_is_exact_for_two_exits(problem: Problem, epsilon: float) -> None:
    best = brute_force(problem, epsilon)
    if math.isfinite(best):
        assert descend(problem, epsilon).cost == pytest.approx(best)


@settings(max_examples=60, deadline=None)
@given(problem=problems(exits=(3,), most=12), epsilon=EPSILONS)
def test_descent_keeps_the_constraint_and_ends_where_no_pair_of_thresholds_improves(
    problem: Problem, epsilon: float
) -> None:
    best = brute_force(problem, epsilon)
    if math.isfinite(best):
        found = descend(problem, epsilon)
        assert found.loss <= epsilon + 1e-9
        assert found.cost == pytest.approx(best)


@settings(max_examples=150, deadline=None)
@given(problem=problems(), data=st.data())
def test_one_coordinate_is_priced_as_if_every_threshold_had_been_tried(problem: Problem, data: st.DataObject) -> None:
    thresholds = np.array([data.draw(st.sampled_from([math.inf, *points.tolist()])) for points in problem.thresholds])
    k = data.draw(st.integers(0, problem.exits - 2))
    cuts = problem.cuts(k, problem.fires(thresholds))
    assert (np.diff(cuts.threshold) < 0).all()
    assert cuts.threshold[0] == math.inf
    for cost, loss, threshold in zip(cuts.cost, cuts.loss, cuts.threshold, strict=True):
        thresholds[k] = threshold
        assert problem.evaluate(thresholds) == pytest.approx((cost / problem.n, loss / problem.n))
    # And no threshold between them does anything else.
    seen = {(round(cost, 9), round(loss, 9)) for cost, loss in zip(cuts.cost, cuts.loss, strict=True)}
    for threshold in problem.thresholds[k]:
        thresholds[k] = threshold
        cost, loss = problem.evaluate(thresholds)
        assert (round(cost * problem.n, 9), round(loss * problem.n, 9)) in seen


def multi_exit(n: int, exits: int, seed: int) -> Problem:
    """Exits that know more and cost more with depth, on samples of differing difficulty."""
    random = np.random.default_rng(seed)
    difficulty = random.random(n)
    skill = np.linspace(0.5, 1.0, exits)
    scores = np.clip(skill - 0.6 * difficulty[:, None] + 0.12 * random.normal(size=(n, exits)), 0.01, 0.99)
    losses = (random.random((n, exits)) < 0.5 * np.exp(-6 * scores)).astype(float)
    losses[:, -1] = 0
    return Problem(scores, losses, np.cumsum(1.0 + 2 * np.arange(exits)))


@pytest.mark.parametrize("seed", range(4))
def test_descent_comes_within_one_percent_of_the_optimum_of_three_exits(seed: int) -> None:
    problem = multi_exit(400, 3, seed)
    optimum, found = enumerate_thresholds(problem, 0.02), descend(problem, 0.02)
    assert optimum.cost < 0.8 * problem.leaving[-1]  # early exit pays here at all
    assert found.cost <= 1.01 * optimum.cost
    assert found.loss <= 0.02


def test_five_exits_are_searched_within_a_second_or_two_and_beat_one_shared_threshold() -> None:
    problem = multi_exit(2500, 5, 0)
    found = search(problem, 0.01)
    assert found.loss <= 0.01
    shared = [problem.evaluate(np.full(4, t)) for t in np.linspace(0.2, 1, 200)]
    assert found.cost < min(cost for cost, loss in shared if loss <= 0.01)


def test_the_same_seed_finds_the_same_thresholds() -> None:
    problem = multi_exit(3000, 4, 1)
    first, second = (search(problem, 0.01, seed=7) for _ in range(2))
    assert first.thresholds.tolist() == second.thresholds.tolist()


def test_equal_scores_leave_or_stay_together() -> None:
    scores = np.array([[0.9, 0], [0.5, 0], [0.5, 0], [0.5, 0], [0.2, 0]])
    losses = np.array([[0, 0], [0, 0], [1, 0], [0, 0], [0, 0]], dtype=float)
    # Half of the tied three would be free of loss; together they are not, so only the first sample leaves.
    assert search(Problem(scores, losses, np.array([1.0, 3.0])), 0.0).thresholds == pytest.approx([0.7])


def test_scores_that_differ_in_their_last_digit_only_are_equal() -> None:
    a = 0.1 + 0.2
    points = cut_points(np.array([0.3, a, 0.7, -math.inf, math.inf]))
    assert a != 0.3
    assert points == pytest.approx([0.3, 0.5])
    assert points[0] == 0.3  # the lowest of the equal ones: both leave


def test_cuts_lie_between_two_scores() -> None:
    random = np.random.default_rng(0)
    scores = random.random(500)
    points = cut_points(scores)
    assert len(points) == 500
    assert not np.isin(points[1:], scores).any()
    assert [np.count_nonzero(scores >= t) for t in points] == list(range(500, 0, -1))


def test_samples_that_cannot_leave_at_any_exit_go_to_the_last() -> None:
    scores = np.full((4, 3), -math.inf)
    found = search(Problem(scores, np.zeros((4, 3)), np.array([1.0, 2.0, 3.0])), 1.0)
    assert found == (pytest.approx([math.inf, math.inf]), 3.0, 0.0)


def test_an_exit_that_costs_more_than_it_saves_stays_closed() -> None:
    problem = Problem(np.ones((10, 3)), np.zeros((10, 3)), np.array([5.0, 6.0, 4.0]))
    assert np.isinf(search(problem, 0.1).thresholds).all()


def test_departures_are_the_first_exit_that_fires() -> None:
    fires = np.array([[True, True], [False, True], [False, False]])
    assert departures(fires).tolist() == [0, 1, 2]
    assert departures(fires[:, :0]).tolist() == [0, 0, 0]


def test_the_front_has_falling_losses_and_begins_at_the_cheapest() -> None:
    problem = multi_exit(600, 3, 2)
    points = front(problem)
    costs, losses = [p.cost for p in points], [p.loss for p in points]
    assert costs == sorted(costs)
    assert losses == sorted(losses, reverse=True)
    assert costs[0] == pytest.approx(problem.leaving[0])
    assert losses[-1] == 0
    assert len(points) > 5
    assert all(isinstance(point, Searched) for point in points)


@pytest.mark.parametrize(
    ("scores", "losses", "leaving"),
    [
        (np.zeros((3, 2)), np.zeros((3, 3)), np.ones(2)),
        (np.zeros((3, 2)), np.zeros((3, 2)), np.ones(3)),
        (np.zeros((0, 2)), np.zeros((0, 2)), np.ones(2)),
    ],
)
def test_arrays_that_do_not_fit_are_an_error(scores: Array, losses: Array, leaving: Array) -> None:
    with pytest.raises(DataError, match="do not fit"):
        Problem(scores, losses, leaving)


def test_a_score_that_is_no_number_is_an_error() -> None:
    with pytest.raises(DataError, match="score is NaN"):
        Problem(np.array([[math.nan, 1.0]]), np.zeros((1, 2)), np.ones(2))
