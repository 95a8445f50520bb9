"""The gate: after an exit, which samples leave. Used alike by the tuner (all samples) and by the runtime (a few)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ipj_edge.exits.policy.policies import parameters_at
from ipj_edge.exits.policy.values import ExitPolicy
from ipj_edge.protocols import Array, ExitRule, RowExitRule, RowScorer
from ipj_edge.values import Meaning

_NEAR = 1e-9  # how far a row scorer may be from the vectorised form, see `RowExitRule`


class Gate:
    """A policy made ready to decide, for one model. Holds no state between calls, may serve several threads.

    Attributes:
        policy: The policy.
        looks_back: How many earlier exits' outputs a decision reads; None for all of them.
        active: For every exit but the last, whether anything can leave there; elsewhere the gate need not be asked.
    """

    __slots__ = ("_rows", "_scorers", "_thresholds", "active", "looks_back", "policy")

    def __init__(self, policy: ExitPolicy, rule: ExitRule, meaning: Meaning) -> None:
        self.policy = policy
        self.looks_back = rule.looks_back
        self.active = tuple(threshold is not None for threshold in policy.thresholds)
        self._thresholds = tuple(math.inf if t is None else t for t in policy.thresholds)
        exits = range(len(policy.thresholds) + 1)
        self._scorers = tuple(rule.bind(k, meaning, parameters_at(policy.parameters, k)) for k in exits)
        self._rows = tuple(_row_gate(policy, rule, meaning, k) for k in exits[:-1])

    def scores(self, exit_index: int, outputs: Sequence[Array]) -> Array:
        """Return the score of every sample at an exit, float64 of shape (n,); −inf where outputs are no numbers.

        Args:
            exit_index: The exit, the last included.
            outputs: Outputs of the exits so far for the same n samples, oldest first, this exit's last.
        """
        return self._scorers[exit_index](outputs)

    def leaves(self, exit_index: int, outputs: Sequence[Array]) -> Array:
        """Return which samples leave at an exit, bool of shape (n,); see `scores`."""
        if not self.active[exit_index]:
            return np.zeros(len(outputs[-1]), dtype=bool)
        return np.greater_equal(self._scorers[exit_index](outputs), self._thresholds[exit_index])

    def row_leaves(self, exit_index: int, outputs: Sequence[Array]) -> bool:
        """Say whether the only sample leaves at an exit: `leaves` for n = 1, quicker and never different."""
        if not self.active[exit_index]:
            return False
        score = self._rows[exit_index](outputs)
        threshold = self._thresholds[exit_index]
        if score >= threshold + _NEAR:
            return True
        if score <= threshold - _NEAR:
            return False
        return bool(self._scorers[exit_index](outputs)[0] >= threshold)  # near, or NaN


def answering_exits(scores: Array) -> Array:
    """Return which exit answers under recall when a sample leaves at each exit.

    Args:
        scores: Scores of shape (n, exits); one row at a time or many.

    Returns:
        Integers of shape (n, exits): column k is the exit with the highest score among 0..k, the deepest of equals.
    """
    best = np.maximum.accumulate(scores, axis=1)
    exits = np.arange(scores.shape[1])
    return np.maximum.accumulate(np.where(scores >= best, exits, 0), axis=1)


def _row_gate(policy: ExitPolicy, rule: ExitRule, meaning: Meaning, exit_index: int) -> RowScorer:
    parameters = parameters_at(policy.parameters, exit_index)
    row = rule.bind_row(exit_index, meaning, parameters) if isinstance(rule, RowExitRule) else None
    if row is not None:
        return row
    scorer = rule.bind(exit_index, meaning, parameters)
    return _first(scorer)


def _first(scorer: Callable[[Sequence[Array]], Array]) -> RowScorer:
    return lambda outputs: float(scorer(outputs)[0])
