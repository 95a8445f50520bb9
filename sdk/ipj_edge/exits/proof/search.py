"""The search for thresholds: least expected cost with a mean loss of at most epsilon on the samples it is given.

What it finds is optimistic, the more so the better it searches: it is the anchor for a test on other samples
(`ipj_edge.exits.proof.certificate`), never a result.

One threshold, the others fixed, is found exactly: sort the samples that reach the exit by score, and prefix sums say
what every cut between two distinct scores costs. Where that can be done for all combinations of the other thresholds
it is (two exits always, three exits up to some thousand samples); elsewhere coordinate descent on cost + μ·loss over a
sweep of μ from several starts, each result improved under the constraint itself, and the best of them two thresholds at
a time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ipj_edge.exits.proof.problem import Cuts, Problem
from ipj_edge.protocols import Array

_EXACT_WORK = 20_000_000  # combinations × samples that enumeration may take: some tenths of a second
_SWEEP = 24
_STARTS = 6
_ROUNDS = 20
_PAIR_TRIALS = 200


class Searched(NamedTuple):
    """Thresholds found (inf: never), of shape (exits − 1,), with their mean cost and mean loss."""

    thresholds: Array
    cost: float
    loss: float


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
    return _paired(problem, best, epsilon)


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


def _paired(problem: Problem, best: Searched, epsilon: float) -> Searched:
    """Improve thresholds two at a time, where one alone could not move without breaking the constraint."""
    pairs = list(itertools.combinations(range(problem.exits - 1), 2))
    for _ in range(_ROUNDS):
        before = best
        for first, second in pairs:
            best = _improve_pair(problem, best, first, second, _budget(problem, epsilon))
        if best.cost >= before.cost:
            break
    return best


def _improve_pair(problem: Problem, best: Searched, first: int, second: int, budget: float) -> Searched:
    """Try thresholds of one exit, each with the exact best of a deeper one."""
    points = problem.thresholds[first]
    tried = np.unique(np.linspace(0, len(points) - 1, min(len(points), _PAIR_TRIALS)).round().astype(int))
    for threshold in (math.inf, *points[tried]):
        thresholds = best.thresholds.copy()
        thresholds[first] = threshold
        cuts = problem.cuts(second, problem.fires(thresholds))
        chosen = _cheapest(cuts, budget)
        if chosen is not None and cuts.cost[chosen] < best.cost * problem.n * (1 - 1e-12):
            thresholds[second] = cuts.threshold[chosen]
            best = Searched(thresholds, *problem.evaluate(thresholds))
    return best


def _cheapest(cuts: Cuts, budget: float) -> int | None:
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
