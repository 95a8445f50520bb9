"""One exit rule on cached outputs: temperatures, scores and the anchor, all chosen on the samples of the search."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ipj_edge.errors import PluginError
from ipj_edge.exits.policy.policies import make_policy
from ipj_edge.exits.policy.rules import TEMPERATURE
from ipj_edge.exits.policy.values import ExitPolicy, StageCosts, TuneRequest
from ipj_edge.exits.proof.cached import Cached
from ipj_edge.exits.proof.costs import cost_of_leaving, expected_cost, never_cost, reached
from ipj_edge.exits.proof.problem import Problem, departures
from ipj_edge.exits.proof.search import Searched, front, search
from ipj_edge.exits.proof.temperature import fit_temperature
from ipj_edge.exits.run.gate import Gate, answering_exits
from ipj_edge.protocols import Array, ExitRule

_COST_ROUNDS = 3


class RuleCandidate(NamedTuple):
    """A rule with what it makes of the data.

    Attributes:
        rule: The rule.
        never: Its policy with every exit closed: parameters and recall.
        scores: Scores of all samples, of shape (n, exits).
        losses: Losses of all samples when answered at each exit, of shape (n, exits).
        right: Whether that answer is right; None without labels.
        anchor: Thresholds found on the samples of the search, with their expected cost.
    """

    rule: ExitRule
    never: ExitPolicy
    scores: Array
    losses: Array
    right: Array | None
    anchor: Searched


def candidate(rule: ExitRule, data: Cached, costs: StageCosts, request: TuneRequest) -> RuleCandidate:
    """Fit temperatures, score all samples and search for thresholds.

    Raises:
        ConfigError: the rule cannot judge these outputs.
        PluginError: the rule does not keep its promises.
    """
    exits = len(data.outputs)
    never = make_policy(
        rule,
        [None] * (exits - 1),
        [request.meaning] * exits,
        parameters=_temperatures(rule, data, request),
        recall=request.recall,
    )
    scores = _scores(Gate(never, rule, request.meaning), rule, data)
    answers = answering_exits(scores) if request.recall else np.broadcast_to(np.arange(exits), scores.shape)
    losses = np.take_along_axis(data.losses, answers, axis=1)
    right = None if data.right is None else np.take_along_axis(data.right, answers, axis=1)
    found = RuleCandidate(rule, never, scores, losses, right, Searched(np.empty(0), 0.0, 0.0))
    return found._replace(anchor=_anchor(found, data, costs, request))


def trades(chosen: RuleCandidate, data: Cached, costs: StageCosts, request: TuneRequest) -> list[Array]:
    """Return thresholds on the front of cost and loss, found on the samples of the search, cheapest first."""
    reach = reached(_leavers(chosen.scores[data.searched], chosen.anchor.thresholds))
    problem = _problem(chosen, data, cost_of_leaving(costs, reach, request.batch))
    return [point.thresholds for point in front(problem, seed=request.seed)]


def _anchor(found: RuleCandidate, data: Cached, costs: StageCosts, request: TuneRequest) -> Searched:
    """Search, for a batch again with fixed costs shared among the rows that were seen to reach each stage."""
    reach = np.ones(len(data.outputs))
    best = Searched(np.full(len(reach) - 1, math.inf), never_cost(costs, request.batch), 0.0)
    for _ in range(_COST_ROUNDS if request.batch > 1 else 1):
        problem = _problem(found, data, cost_of_leaving(costs, reach, request.batch))
        point = search(problem, request.epsilon, seed=request.seed)
        leavers = _leavers(found.scores[data.searched], point.thresholds)
        cost = expected_cost(costs, leavers, request.batch)
        if cost < best.cost:
            best = point._replace(cost=cost)
        reach = reached(leavers)
    return best


def _problem(found: RuleCandidate, data: Cached, leaving: Array) -> Problem:
    return Problem(found.scores[data.searched], found.losses[data.searched], leaving)


def _leavers(scores: Array, thresholds: Array) -> Array:
    return np.bincount(departures(np.greater_equal(scores[:, :-1], thresholds)), minlength=scores.shape[1])


def _scores(gate: Gate, rule: ExitRule, data: Cached) -> Array:
    """Score all samples at every exit; an outsider's rule is held to what it promised."""
    columns = []
    low, high = rule.bounds(len(data.outputs))
    for k, output in enumerate(data.outputs):
        found = np.asarray(gate.scores(k, data.outputs[: k + 1]), dtype=np.float64)
        if found.shape != (len(output),):
            raise PluginError(f"exit rule '{rule.name}' gave scores of shape {found.shape}, expected ({len(output)},)")
        finite = found[np.isfinite(found)]
        if finite.size and not (low <= finite.min() and finite.max() <= high):
            raise PluginError(
                f"exit rule '{rule.name}' gave scores in {finite.min():g}..{finite.max():g}, outside the range "
                f"{low:g}..{high:g} that it states"
            )
        columns.append(np.nan_to_num(found, nan=-math.inf, posinf=np.finfo(float).max, neginf=-math.inf))
    return np.stack(columns, axis=1)


def _temperatures(rule: ExitRule, data: Cached, request: TuneRequest) -> dict[str, tuple[float, ...]]:
    """Fit one temperature an exit to the labels, without labels to the last exit's answers."""
    if not request.temperature or TEMPERATURE not in rule.parameters or data.predicted is None:
        return {}
    targets = data.predicted[:, -1] if data.labels is None else data.labels
    fitted = [
        fit_temperature(output[data.searched], targets[data.searched], request.meaning) for output in data.outputs
    ]
    if data.labels is None:
        fitted[-1] = 1.0  # the last exit cannot be fitted to itself
    return {TEMPERATURE: tuple(fitted)}
