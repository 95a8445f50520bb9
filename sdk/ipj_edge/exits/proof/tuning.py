"""From cached exit outputs to a certified policy: split, temperatures, scores, search, proof. Seconds, no engine.

Whatever is chosen (temperatures, rule, thresholds, the path) is chosen on the samples of the search alone; the test
samples decide one thing, how far along the path the walk may go.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ipj_edge.errors import ConfigError
from ipj_edge.exits.policy.policies import make_policy
from ipj_edge.exits.policy.values import (
    Certificate,
    Expectation,
    FrontPoint,
    Method,
    PolicyOrigin,
    StageCosts,
    Tuned,
    TuneRequest,
)
from ipj_edge.exits.proof.cached import Cached, prepare
from ipj_edge.exits.proof.candidates import RuleCandidate, candidate, trades
from ipj_edge.exits.proof.certificate import Examined, examine, samples_needed, walk
from ipj_edge.exits.proof.costs import check_costs, expected_cost, never_cost
from ipj_edge.exits.proof.path import anchored_path
from ipj_edge.exits.proof.problem import departures
from ipj_edge.plugins import load_exit_rule
from ipj_edge.protocols import Array
from ipj_edge.stats import wilson_interval
from ipj_edge.values import Interval, Meaning

_FRONT_POINTS = 32


def tune(
    outputs: Sequence[Array], labels: Array | None, costs: StageCosts, request: TuneRequest, provenance: PolicyOrigin
) -> Tuned:
    """Find the cheapest policy that can be proven to keep the risk at most epsilon.

    Args:
        outputs: Real-valued outputs of every exit on the same n samples, by depth, each of shape (n, …).
        labels: Right classes, integers of shape (n,), or None.
        costs: What every stage costs.
        request: What the user wants.
        provenance: Where the outputs come from.

    Raises:
        ConfigError: a model with one exit, exits that do not fit each other, costs or a setting out of range.
        DataError: too few samples, labels that do not fit, or a last exit without a number (names the samples).
    """
    _check_request(request)
    data = prepare(outputs, labels, request)
    check_costs(costs, len(outputs))
    candidates = [candidate(load_exit_rule(name), data, costs, request) for name in request.rules]
    chosen = min(candidates, key=lambda found: found.anchor.cost)
    return _Tuning(chosen, data, costs, request, provenance).result()


class _Tuning:
    """The proof for the rule that was chosen, and the values that report it."""

    def __init__(
        self, chosen: RuleCandidate, data: Cached, costs: StageCosts, request: TuneRequest, provenance: PolicyOrigin
    ) -> None:
        self.chosen, self.data, self.costs, self.request, self.provenance = chosen, data, costs, request, provenance
        self.scores, self.losses = chosen.scores[data.tested, :-1], chosen.losses[data.tested]
        self.never = self._without_exits()

    def result(self) -> Tuned:
        """Return what to ship: the last policy that passed, or never exiting with the reason."""
        anchor, request = self.chosen.anchor.thresholds, self.request
        least = samples_needed(request.epsilon, request.delta) if request.certify else None
        if least is not None and len(self.data.tested) < least:
            return self._too_few(f"{self._goal()} takes at least {least} samples for the test", 0.0, "exact-binomial")
        if not np.isfinite(anchor).any():
            return self._nothing(
                f"no thresholds save anything with {self.data.loss} at most {100 * request.epsilon:g} % on the "
                f"{len(self.data.searched)} samples of the search"
            )
        if not request.certify:
            examined = examine(self.scores, self.losses, anchor, request.epsilon)
            return self._policy(examined, "no certificate was asked for")
        return self._walked(anchor)

    def _walked(self, anchor: Array) -> Tuned:
        """Return the last policy on the path through the anchor that is proven."""
        bounds = self.chosen.rule.bounds(len(self.data.outputs))
        path = anchored_path(self.chosen.scores[self.data.searched, :-1], anchor, bounds)
        walked = walk(self.scores, self.losses, path, self.request.epsilon, self.request.delta)
        accepted, failed = walked.accepted, walked.failed
        if failed is not None and (accepted is None or not np.isfinite(accepted.thresholds).any()):
            seen = f"the first policy that exits already has {100 * failed.risk:.3g} % on {len(self.losses)} samples"
            return self._too_few(f"{self._goal()} is not proven: {seen}", failed.risk, failed.method)
        if accepted is None or self._expected(accepted.thresholds).cost >= self.never.cost:
            return self._nothing("what can be proven saves nothing: it costs as much as never exiting early")
        return self._policy(accepted)

    def _goal(self) -> str:
        request = self.request
        return f"{self.data.loss} at most {100 * request.epsilon:g} % at {100 * (1 - request.delta):g} % confidence"

    def _too_few(self, what: str, risk: float, method: Method) -> Tuned:
        """Say how many samples are missing for a proof at a risk, or that no number would do."""
        needed = samples_needed(self.request.epsilon, self.request.delta, risk, method)
        if needed is None:
            return self._nothing(f"{what}; at such a risk no number of samples proves it")
        n = len(self.data.losses)
        total = math.ceil(needed / (1 - self.request.search_share))
        missing = max(1, total - n)
        return self._nothing(f"{what}; {missing} more are needed at that risk, {n + missing} in all", missing)

    def _nothing(self, reason: str, missing: int | None = None) -> Tuned:
        """Return the policy that never exits, with the reason."""
        policy = self.chosen.never
        return Tuned(
            policy=make_policy(self.chosen.rule, policy.thresholds, self._meanings()),
            certificate=self._certificate(None, self.never.leavers, reason, missing),
            expected=self.never,
            never=self.never,
            front=self._front(),
        )

    def _policy(self, examined: Examined, reason: str = "") -> Tuned:
        """Return a policy that was tested."""
        closed = self.chosen.never
        thresholds = [float(threshold) for threshold in examined.thresholds]
        expected = self._expected(examined.thresholds)
        return Tuned(
            policy=make_policy(
                self.chosen.rule, thresholds, self._meanings(), parameters=closed.parameters, recall=closed.recall
            ),
            certificate=self._certificate(examined, expected.leavers, reason, None),
            expected=expected,
            never=self.never,
            front=self._front(),
        )

    def _certificate(
        self, examined: Examined | None, leavers: tuple[int, ...], reason: str, missing: int | None
    ) -> Certificate:
        return Certificate(
            method="none" if examined is None or reason else examined.method,
            reason=reason,
            loss=self.data.loss,
            epsilon=self.request.epsilon,
            delta=self.request.delta,
            n_search=len(self.data.searched),
            n_test=len(self.data.tested),
            risk=None if examined is None else examined.risk,
            errors=None if examined is None else examined.errors,
            p_value=None if examined is None else examined.p_value,
            samples_missing=missing,
            seed=self.request.seed,
            leavers=leavers,
            data_sha256=self.provenance.data_sha256,
            files=dict(self.provenance.files),
            settings=dict(self.provenance.settings),
        )

    def _meanings(self) -> list[Meaning]:
        return [self.request.meaning] * len(self.data.outputs)

    def _expected(self, thresholds: Array) -> Expectation:
        """Return what thresholds do on the test samples."""
        gone = departures(np.greater_equal(self.scores, thresholds))
        rows = np.arange(len(gone))
        leavers = np.bincount(gone, minlength=self.losses.shape[1])
        right = None if self.chosen.right is None else self.chosen.right[self.data.tested][rows, gone]
        return Expectation(
            cost=expected_cost(self.costs, leavers, self.request.batch),
            risk=float(self.losses[rows, gone].mean()),
            accuracy=_accuracy(right),
            leavers=tuple(map(int, leavers)),
        )

    def _without_exits(self) -> Expectation:
        """Return what the last exit alone does on the test samples, recall or not."""
        data = self.data
        return Expectation(
            cost=never_cost(self.costs, self.request.batch),
            risk=float(data.losses[data.tested, -1].mean()),
            accuracy=_accuracy(None if data.right is None else data.right[data.tested, -1]),
            leavers=(*(0 for _ in data.outputs[:-1]), len(data.tested)),
        )

    def _front(self) -> tuple[FrontPoint, ...]:
        found = trades(self.chosen, self.data, self.costs, self.request)
        picked = np.unique(np.linspace(0, len(found) - 1, min(len(found), _FRONT_POINTS)).round().astype(int))
        return tuple(_front_point(found[place], self._expected(found[place])) for place in picked)


def _front_point(thresholds: Array, expected: Expectation) -> FrontPoint:
    return FrontPoint(thresholds=tuple(None if math.isinf(t) else float(t) for t in thresholds), expected=expected)


def _accuracy(right: Array | None) -> Interval | None:
    return None if right is None else wilson_interval(int(right.sum()), len(right))


def _check_request(request: TuneRequest) -> None:
    for name in ("epsilon", "delta", "search_share"):
        value = getattr(request, name)
        if not 0 < value < 1:
            raise ConfigError(f"{name} must be above 0 and below 1, got {value}")
    if request.batch < 1:
        raise ConfigError(f"batch must be at least 1, got {request.batch}")
    if not request.rules:
        raise ConfigError("no exit rule was named: give at least one")
