"""The search for thresholds: least expected cost with a mean loss of at most epsilon on the samples it is given.

What it finds is optimistic, the more so the better it searches: it is the anchor for a test on other samples
(`ipj_edge.exits.certificate`), never a result.

One threshold, the others fixed, is found exactly: sort the samples that reach the exit by score, and prefix sums say
what every cut between two distinct scores costs. Where that can be done for all combinations of the other thresholds
it is (two exits always, three exits up to some thousand samples); elsewhere coordinate descent on cost + μ·loss over a
sweep of μ from several starts, each result then improved under the constraint itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ipj_edge.errors import DataError
from ipj_edge.protocols import Array

_EXACT_WORK = 20_000_000  # combinations × samples that enumeration may take: some tenths of a second
_SWEEP = 24
_STARTS = 6
_ROUNDS = 20


class Searched(NamedTuple):
    """Thresholds found (inf: never), of shape (exits − 1,), with their mean cost and mean loss."""

    thresholds: Array
    cost: float
    loss: float


class _Cuts(NamedTuple):
    """Every cut of one exit: sums over all samples of cost and loss, and the threshold, strictest first."""

    cost: Array
    loss: Array
    threshold: Array


class Problem:
    """Scores, losses and costs, prepared for many evaluations.

    Args:
        scores: Scores of every exit, of shape (n, exits); the last column is not read. −inf never leaves.
        losses: Loss of being answered at each exit, of shape (n, exits), at least 0.
        leaving: Cost of leaving at each exit, of shape (exits,).

    Raises:
        DataError: the shapes do not fit, or a score is NaN.
    """

    def __init__(self, scores: Array, losses: Array, leaving: Array) -> None:
        if scores.ndim != 2 or scores.shape != losses.shape or scores.shape[1:] != leaving.shape or not scores.size:
            raise DataError(f"scores {scores.shape}, losses {losses.shape} and costs {leaving.shape} do not fit")
        if np.isnan(scores[:, :-1]).any():
            raise DataError("a score is NaN; a sample that must not leave scores −inf")
        self.scores, self.losses, self.leaving = scores[:, :-1], losses, leaving
        self.n, self.exits = int(losses.shape[0]), int(losses.shape[1])
        self._orders = [_descending(column) for column in self.scores.T]
        self.thresholds = [cut_points(column) for column in self.scores.T]

    def fires(self, thresholds: Array) -> Array:
        """Return where each early exit would let a sample go if asked, bool of shape (n, exits − 1)."""
        return np.greater_equal(self.scores, thresholds)

    def cuts(self, k: int, fires: Array) -> _Cuts:
        """Return what every threshold of exit k leads to, the other exits as they are."""
        blocked: Array = np.asarray(fires[:, :k].any(axis=1))
        later = departures(fires[:, k + 1 :]) + k + 1
        stays = np.where(blocked, departures(fires[:, :k]), later) if k else later
        base_cost, base_loss = self.leaving[stays].sum(), self.losses[np.arange(self.n), stays].sum()
        order = self._orders[k]
        rows = order[~blocked[order]]
        scores, goes = self.scores[rows, k], stays[rows]
        cost = np.concatenate(([0.0], np.cumsum(self.leaving[k] - self.leaving[goes])))
        loss = np.concatenate(([0.0], np.cumsum(self.losses[rows, k] - self.losses[rows, goes])))
        ends = np.concatenate(([0], np.flatnonzero(np.append(scores[1:] < scores[:-1], True)[: len(rows)]) + 1))
        return _Cuts(base_cost + cost[ends], base_loss + loss[ends], self._cut_below(k, scores[ends[1:] - 1]))

    def evaluate(self, thresholds: Array) -> tuple[float, float]:
        """Return mean cost and mean loss."""
        gone = departures(self.fires(thresholds))
        return float(self.leaving[gone].mean()), float(self.losses[np.arange(self.n), gone].mean())

    def _cut_below(self, k: int, scores: Array) -> Array:
        """Return inf, then for each of some scores of exit k the threshold just below it."""
        points = self.thresholds[k]
        # A cut lies in (next lower score, score]: the last of the ascending points that is not above the score.
        return np.concatenate(([math.inf], points[np.searchsorted(points, scores, side="right") - 1]))


def cut_points(scores: Array) -> Array:
    """Return every threshold that tells scores apart, ascending: halfway between two distinct ones, and the lowest.

    Halfway, a sample of the search does not change sides when its engine answers a last bit differently.
    """
    levels = np.unique(scores[np.isfinite(scores)])
    if not levels.size:
        return levels
    below, above = levels[:-1], levels[1:]
    middle = below + (above - below) / 2
    return np.concatenate((levels[:1], np.where(middle > below, middle, above)))


def departures(fires: Array) -> Array:
    """Return the first exit that fires for each sample, else the number of columns, integers of shape (n,)."""
    if fires.shape[1] == 0:
        return np.zeros(len(fires), dtype=np.intp)
    gone: Array = np.where(fires.any(axis=1), fires.argmax(axis=1), fires.shape[1])
    return gone


def search(problem: Problem, epsilon: float, *, seed: int = 0) -> Searched:
    """Return the cheapest thresholds found whose mean loss is at most epsilon; never exiting when there are none.

    Exact where enumeration is affordable, else the best of coordinate descent.
    """
    if _work(problem) <= _EXACT_WORK:
        return enumerate_thresholds(problem, epsilon)
    return descend(problem, epsilon, seed=seed)


def enumerate_thresholds(problem: Problem, epsilon: float) -> Searched:
    """Return the exact optimum: all combinations of the first thresholds, the last of them by prefix sums."""
    never = np.full(problem.exits - 1, math.inf)
    best, best_cost = never, problem.evaluate(never)[0] * problem.n
    last = problem.exits - 2
    for head in itertools.product(*([math.inf, *points[::-1]] for points in problem.thresholds[:last])):
        thresholds = np.array([*head, math.inf])
        cuts = problem.cuts(last, problem.fires(thresholds))
        chosen = _cheapest(cuts, _budget(problem, epsilon))
        if chosen is not None and cuts.cost[chosen] < best_cost - 1e-12 * abs(best_cost):
            thresholds[last] = cuts.threshold[chosen]
            best, best_cost = thresholds, cuts.cost[chosen]
    return Searched(best, *problem.evaluate(best))


def descend(problem: Problem, epsilon: float, *, seed: int = 0) -> Searched:
    """Return the best of coordinate descent over a sweep of μ and several starts, improved under the constraint."""
    never = np.full(problem.exits - 1, math.inf)
    best = Searched(never, *problem.evaluate(never))
    for found in _swept(problem, seed):
        improved = _constrained(problem, found, epsilon)
        cost, loss = problem.evaluate(improved)
        if loss * problem.n <= _budget(problem, epsilon) and cost < best.cost:
            best = Searched(improved, cost, loss)
    return best


def front(problem: Problem, *, seed: int = 0) -> list[Searched]:
    """Return the trades between cost and loss that no other found one beats, cheapest first."""
    never = np.full(problem.exits - 1, math.inf)
    found = [Searched(t, *problem.evaluate(t)) for t in (never, *_swept(problem, seed))]
    points: list[Searched] = []
    for point in sorted(found, key=lambda point: (point.cost, point.loss)):
        if not points or point.loss < points[-1].loss - 1e-12:
            points.append(point)
    return points


def _swept(problem: Problem, seed: int) -> Iterator[Array]:
    """Yield the local optimum of cost + μ·loss for every μ and start, each once."""
    starts = _starts(problem, seed)
    seen: set[bytes] = set()
    warm = starts[0]
    for weight in problem.leaving[-1] * np.logspace(-2, math.log10(problem.n) + 1, _SWEEP):
        for start in (warm, *starts):
            found = _relaxed(problem, start, float(weight))
            if found.tobytes() not in seen:
                seen.add(found.tobytes())
                yield found
            warm = found if start is warm else warm


def _starts(problem: Problem, seed: int) -> list[Array]:
    """Return never, at once, and random shares of leavers at every exit."""
    random = np.random.default_rng(seed)
    starts = [np.full(problem.exits - 1, math.inf), np.array([min(p, default=math.inf) for p in problem.thresholds])]
    for _ in range(_STARTS - len(starts)):
        shares = random.random(problem.exits - 1)
        picks = [p[int(s * len(p))] if len(p) else math.inf for p, s in zip(problem.thresholds, shares, strict=True)]
        starts.append(np.array(picks))
    return starts


def _relaxed(problem: Problem, start: Array, weight: float) -> Array:
    """Minimise cost + weight·loss by one exact coordinate after the other until none moves."""
    thresholds = start.copy()
    for _ in range(_ROUNDS):
        before = thresholds.copy()
        for k in range(problem.exits - 1):
            cuts = problem.cuts(k, problem.fires(thresholds))
            thresholds[k] = cuts.threshold[int((cuts.cost + weight * cuts.loss).argmin())]
        if (thresholds == before).all():
            break
    return thresholds


def _constrained(problem: Problem, start: Array, epsilon: float) -> Array:
    """Minimise cost under the constraint, one exact coordinate after the other, deepest first."""
    thresholds, budget = start.copy(), _budget(problem, epsilon)
    for _ in range(_ROUNDS):
        before = thresholds.copy()
        for k in reversed(range(problem.exits - 1)):
            cuts = problem.cuts(k, problem.fires(thresholds))
            chosen = _cheapest(cuts, budget)
            thresholds[k] = cuts.threshold[int(cuts.loss.argmin()) if chosen is None else chosen]
        if (thresholds == before).all():
            break
    return thresholds


def _cheapest(cuts: _Cuts, budget: float) -> int | None:
    """Return the cheapest cut whose loss fits the budget, the strictest of equals, or None."""
    allowed = cuts.loss <= budget
    if not allowed.any():
        return None
    return int(np.where(allowed, cuts.cost, math.inf).argmin())


def _budget(problem: Problem, epsilon: float) -> float:
    """Return the largest sum of losses allowed; a last-bit error of the product may not cost a whole sample."""
    return epsilon * problem.n * (1 + 1e-12) + 1e-12


def _work(problem: Problem) -> float:
    return problem.n * math.prod(float(len(points) + 1) for points in problem.thresholds[:-1])


def _descending(scores: Array) -> Array:
    """Return the samples that can leave at all, highest score first."""
    order = np.argsort(-scores, kind="stable")
    return order[: int(np.count_nonzero(scores > -math.inf))]
