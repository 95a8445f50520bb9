import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipj_edge.errors import DataError
from ipj_edge.exits.binomial import binomial_cdf
from ipj_edge.exits.proof.certificate import hoeffding_bentkus, loss_method, p_value, samples_needed, split, walk
from ipj_edge.exits.proof.path import anchored_path
from ipj_edge.exits.proof.problem import Problem
from ipj_edge.exits.proof.search import search
from ipj_edge.protocols import Array

EPSILON, DELTA = 0.02, 0.05
TRIALS = 200


class Truth:
    """A generator of samples whose true risk under every policy is a finite sum.

    Scores are drawn alike from a grid of levels, as those of an int8 engine are, and at each exit apart; given its
    score an early exit does harm with a known probability.
    """

    levels = np.linspace(0.2, 1.0, 41)
    leaving = np.array([1.0, 3.0, 9.0])
    worst = (0.5, 0.3)

    def harm(self, k: int, scores: Array) -> Array:
        return self.worst[k] * (1 - scores) ** 2

    def draw(self, random: np.random.Generator, n: int) -> tuple[Array, Array]:
        scores = random.choice(self.levels, (n, 3))
        losses = np.zeros((n, 3))
        for k in range(2):
            losses[:, k] = random.random(n) < self.harm(k, scores[:, k])
        return scores, losses

    def risk(self, thresholds: Array) -> float:
        risk, reach = 0.0, 1.0
        for k, threshold in enumerate(thresholds):
            fires = self.levels >= threshold
            risk += reach * float((fires * self.harm(k, self.levels)).mean())
            reach *= 1 - float(fires.mean())
        return risk


def certified(scores: Array, losses: Array, leaving: Array, seed: int) -> tuple[Array, Array]:
    """Return the anchor, and the thresholds proven on the part of the data the anchor has not seen."""
    searched, tested = split(np.zeros(len(scores)), 0.25, seed)
    anchor = search(Problem(scores[searched], losses[searched], leaving), EPSILON, seed=seed).thresholds
    path = anchored_path(scores[searched, :-1], anchor, (0.0, 1.0))
    found = walk(scores[tested, :-1], losses[tested], path, EPSILON, DELTA).accepted
    return anchor, np.full(2, math.inf) if found is None else found.thresholds


def test_the_certificate_holds_where_the_truth_is_known() -> None:
    truth, broken, broken_without, costs = Truth(), 0, 0, []
    for seed in range(TRIALS):
        random = np.random.default_rng(seed)
        scores, losses = truth.draw(random, 1200)
        anchor, proven = certified(scores, losses, truth.leaving, seed)
        broken += truth.risk(proven) > EPSILON
        broken_without += truth.risk(anchor) > EPSILON
        fresh = truth.draw(random, 2000)[0]
        costs.append(Problem(fresh, np.zeros_like(fresh), truth.leaving).evaluate(proven)[0] / truth.leaving[-1])
    allowed = TRIALS * DELTA + 3 * math.sqrt(TRIALS * DELTA * (1 - DELTA))
    assert broken <= allowed
    assert broken_without > 3 * allowed  # what the search alone would have shipped: the test is not vacuous
    assert np.mean(costs) < 0.75  # nor is the proof bought by never exiting


def test_a_certificate_of_fractional_losses_holds_too() -> None:
    truth, broken = Truth(), 0
    for seed in range(100):
        random = np.random.default_rng(1000 + seed)
        scores, losses = truth.draw(random, 1200)
        # A loss u·1[harm] with u uniform has half the risk: epsilon is compared with that.
        losses *= random.random(losses.shape)
        _, proven = certified(scores, losses, truth.leaving, seed)
        broken += truth.risk(proven) / 2 > EPSILON
    assert broken <= 100 * DELTA + 3 * math.sqrt(100 * DELTA * (1 - DELTA))


def test_the_first_failure_ends_the_walk_and_the_last_that_passed_is_kept() -> None:
    n = 1000
    scores = np.arange(n)[::-1, None] / n
    losses = np.zeros((n, 2))
    losses[[300, 310, 320, 330, 340, 350, 360], 0] = 1  # the seventh error is one too many: 4 pass of 1,000 at 1 %
    path = [np.array([t]) for t in (math.inf, 0.9, 0.68, 0.66, 0.65, 0.645, 0.0)]
    found = walk(scores, losses, path, 0.01, 0.05)
    assert found.accepted is not None
    assert found.failed is not None
    assert (found.accepted.thresholds.tolist(), found.accepted.errors) == ([0.66], 4)
    assert (found.failed.thresholds.tolist(), found.failed.errors) == ([0.65], 5)
    assert found.accepted.p_value <= 0.05 < found.failed.p_value


def test_a_later_policy_that_would_pass_again_is_not_taken() -> None:
    scores = np.linspace(0, 1, 1000)[:, None]
    losses = np.zeros((1000, 2))
    losses[:, 0] = scores[:, 0] > 0.9
    good, bad = np.array([math.inf]), np.array([0.5])
    found = walk(scores, losses, [good, bad, good], 0.01, 0.05)
    assert found.failed is not None
    assert found.failed.thresholds is bad
    assert walk(scores, losses, [bad, good], 0.01, 0.05).accepted is None


def test_of_policies_that_let_the_same_samples_leave_the_strictest_is_kept() -> None:
    path = [np.array([t]) for t in (math.inf, 0.7, 0.6, 0.1)]
    found = walk(np.full((500, 1), 0.8), np.zeros((500, 2)), path, 0.01, 0.05)
    assert found.accepted is not None
    assert found.accepted.thresholds.tolist() == [0.7]


def test_a_path_without_failure_is_accepted_to_its_end() -> None:
    found = walk(np.ones((500, 1)), np.zeros((500, 2)), [np.array([math.inf]), np.array([0.5])], 0.01, 0.05)
    assert found.failed is None
    assert found.accepted is not None
    assert found.accepted.thresholds.tolist() == [0.5]


@pytest.mark.parametrize(
    ("epsilon", "n", "most"),
    [
        (0.01, 299, 0),
        (0.01, 500, 1),
        (0.01, 1000, 4),
        (0.01, 1500, 8),
        (0.01, 3000, 20),
        (0.005, 1000, 1),
        (0.005, 3000, 8),
    ],
)
def test_the_largest_error_count_that_certifies(epsilon: float, n: int, most: int) -> None:
    losses = np.zeros(n)
    losses[:most] = 1
    assert p_value(losses, epsilon, "exact-binomial") <= 0.05
    losses[most] = 1
    assert p_value(losses, epsilon, "exact-binomial") > 0.05


@pytest.mark.parametrize(
    ("epsilon", "risk", "n"),
    [(0.01, 0, 299), (0.01, 0.005, 1182), (0.005, 0.0025, 2366), (0.02, 0.01, 590), (0.05, 0.025, 234)],
)
def test_samples_needed_at_five_percent(epsilon: float, risk: float, n: int) -> None:
    assert samples_needed(epsilon, 0.05, risk) == n


def test_no_error_needs_a_little_less_than_the_rule_of_thumb() -> None:
    for epsilon, delta in [(0.01, 0.05), (0.001, 0.01), (0.3, 0.5), (1e-5, 0.05)]:
        n = samples_needed(epsilon, delta)
        assert n is not None
        assert (1 - epsilon) ** n <= delta < (1 - epsilon) ** (n - 1)
        assert n <= math.ceil(math.log(1 / delta) / epsilon)


@settings(max_examples=60, deadline=None)
@given(
    epsilon=st.sampled_from([0.03, 0.1, 0.25]),
    delta=st.sampled_from([0.05, 0.2]),
    part=st.sampled_from([0.1, 0.4, 0.6]),
)
def test_samples_needed_is_the_fewest(epsilon: float, delta: float, part: float) -> None:
    risk = part * epsilon
    fewest = next(n for n in range(1, 5000) if binomial_cdf(math.ceil(risk * n), n, epsilon) <= delta)
    assert samples_needed(epsilon, delta, risk) == fewest


def test_a_risk_at_or_above_epsilon_is_never_proven() -> None:
    assert samples_needed(0.01, 0.05, 0.01) is None
    assert samples_needed(0.01, 0.05, 0.3) is None
    assert samples_needed(0.01, 0.05, 0.00999999) is None  # more than ten million


def test_fractional_losses_need_more_samples_than_errors() -> None:
    n = samples_needed(0.01, 0.05, 0.005, "hoeffding-bentkus")
    assert n is not None
    assert 1182 < n < 2000
    assert hoeffding_bentkus(0.005 * n, n, 0.01) <= 0.05 < hoeffding_bentkus(0.005 * (n - 1), n - 1, 0.01)


def test_no_loss_at_all_is_no_trouble_for_hoeffding() -> None:
    # 0·log 0 must be 0: as NaN it would silently leave only the weaker bound, e times too large.
    assert hoeffding_bentkus(0.0, 300, 0.01) == pytest.approx(0.99**300)
    assert hoeffding_bentkus(300.0, 300, 0.01) == 1


def test_the_method_follows_from_the_losses() -> None:
    assert loss_method(np.array([[0.0, 1.0]])) == "exact-binomial"
    assert loss_method(np.array([[0.0, 0.5]])) == "hoeffding-bentkus"
    for bad in ([[1.5]], [[-0.1]], [[math.nan]]):
        with pytest.raises(DataError, match=r"losses must lie within 0\.\.1"):
            loss_method(np.array(bad))


def test_a_path_of_scores_that_never_leave_never_exits() -> None:
    path = anchored_path(np.full((4, 1), -math.inf), np.array([math.inf]), (-math.inf, math.inf), steps=50)
    assert np.isinf(path).all()


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    bounds=st.sampled_from([(0.0, 1.0), (1.0, 4.0), (-math.inf, 0.0), (0.0, math.inf), (-math.inf, math.inf)]),
    exits=st.integers(1, 3),
)
def test_the_path_is_nested_and_runs_from_never_through_the_anchor(
    data: st.DataObject, bounds: tuple[float, float], exits: int
) -> None:
    low, high = max(bounds[0], -50.0), min(bounds[1], 50.0)
    score = st.one_of(
        st.floats(low, high, width=32), st.sampled_from([low, high, (low + high) / 2]), st.just(-math.inf)
    )
    scores = np.reshape(data.draw(st.lists(score, min_size=4 * exits, max_size=4 * exits)), (4, exits))
    anchor = np.array(
        [data.draw(st.sampled_from([math.inf, *scores[np.isfinite(scores[:, k]), k]])) for k in range(exits)]
    )
    path = anchored_path(scores, anchor, bounds, steps=50)
    assert np.isinf(path[0]).all()
    assert (path[1:] <= path[:-1]).all()
    assert np.isinf(path[:, np.isinf(anchor)]).all()  # an exit the search closed stays closed
    assert ((path >= bounds[0]) | np.isinf(path)).all()
    fires = [scores >= thresholds for thresholds in path]
    assert not fires[1].any()  # the first real step lets nothing leave either
    for before, after in itertools.pairwise(fires):
        assert (after | ~before).all()
    used = np.isfinite(anchor)
    assert (fires[-1][:, used] >= (scores >= anchor)[:, used]).all()


def test_the_path_passes_close_to_the_anchor() -> None:
    scores = np.random.default_rng(0).random((400, 2))
    anchor = np.array([0.93, 0.4])
    path = anchored_path(scores, anchor, (0.0, 1.0))
    assert np.abs(path[1:] - anchor).max(axis=1).min() < 0.02


def test_scores_on_the_end_of_the_range_do_not_leave_before_the_anchor() -> None:
    scores = np.array([[1.0], [1.0], [0.4]])
    path = anchored_path(scores, np.array([1.0]), (0.0, 1.0), steps=30)
    leaving = [(scores >= t).sum() for t in path]
    assert leaving[0] == leaving[1] == 0
    assert 2 in leaving


@settings(max_examples=60, deadline=None)
@given(
    strata=st.lists(st.integers(0, 3), min_size=1, max_size=200),
    share=st.sampled_from([0.1, 0.25, 0.5]),
    seed=st.integers(0, 5),
)
def test_a_split_takes_its_share_of_all_samples_and_of_every_class(strata: list[int], share: float, seed: int) -> None:
    labels = np.array(strata)
    first, second = split(labels, share, seed)
    assert sorted([*first, *second]) == list(range(len(labels)))
    assert abs(len(first) - share * len(labels)) < 1
    for label in set(strata):
        assert abs((labels[first] == label).sum() - share * (labels == label).sum()) <= 1 + 1e-9
    again, _ = split(labels, share, seed)
    assert again.tolist() == first.tolist()


def test_every_sample_has_the_same_chance_to_be_searched() -> None:
    labels = np.array([0] * 3 + [1] * 7)
    counts = np.zeros(10)
    for seed in range(4000):
        counts[split(labels, 0.25, seed)[0]] += 1
    assert counts / 4000 == pytest.approx([0.25] * 10, abs=0.03)
