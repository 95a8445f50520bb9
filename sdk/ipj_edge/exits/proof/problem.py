"""Scores, losses and costs of samples, prepared so that all cuts of one exit are priced by one pass of prefix sums."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ipj_edge.errors import DataError
from ipj_edge.protocols import Array


class Cuts(NamedTuple):
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
        self.thresholds = [cut_points(column) for column in self.scores.T]
        pairs = zip(self.thresholds, self.scores.T, strict=True)
        # Level i holds the scores between thresholds i and i + 1; −1 is below all: such a sample cannot leave.
        self._levels = [np.searchsorted(points, column, side="right") - 1 for points, column in pairs]
        self._orders = [np.argsort(-levels, kind="stable")[: np.count_nonzero(levels >= 0)] for levels in self._levels]

    def fires(self, thresholds: Array) -> Array:
        """Return where each early exit would let a sample go if asked, bool of shape (n, exits − 1)."""
        return np.greater_equal(self.scores, thresholds)

    def cuts(self, k: int, fires: Array) -> Cuts:
        """Return what every threshold of exit k leads to, the other exits as they are."""
        blocked: Array = np.asarray(fires[:, :k].any(axis=1))
        later = departures(fires[:, k + 1 :]) + k + 1
        stays = np.where(blocked, departures(fires[:, :k]), later) if k else later
        base_cost, base_loss = self.leaving[stays].sum(), self.losses[np.arange(self.n), stays].sum()
        order = self._orders[k]
        rows = order[~blocked[order]]
        levels, goes = self._levels[k][rows], stays[rows]
        cost = np.concatenate(([0.0], np.cumsum(self.leaving[k] - self.leaving[goes])))
        loss = np.concatenate(([0.0], np.cumsum(self.losses[rows, k] - self.losses[rows, goes])))
        ends = np.flatnonzero(np.diff(levels, append=-1)) + 1
        places = np.concatenate(([0], ends))
        thresholds = np.concatenate(([math.inf], self.thresholds[k][levels[ends - 1]]))
        return Cuts(base_cost + cost[places], base_loss + loss[places], thresholds)

    def evaluate(self, thresholds: Array) -> tuple[float, float]:
        """Return mean cost and mean loss."""
        gone = departures(self.fires(thresholds))
        return float(self.leaving[gone].mean()), float(self.losses[np.arange(self.n), gone].mean())


def cut_points(scores: Array) -> Array:
    """Return every threshold that tells scores apart, ascending: halfway between two distinct ones, and the lowest.

    Scores that differ in their last digits only are one: the same logits in another order of classes sum up a little
    differently. Halfway, a sample of the search does not change sides when its engine answers a last bit differently.
    """
    values = np.unique(scores[np.isfinite(scores)])
    if not values.size:
        return values
    gaps = np.diff(values)
    apart = gaps > 1e-12 * np.abs(values).max()
    return np.concatenate((values[:1], (values[:-1] + gaps / 2)[apart]))


def departures(fires: Array) -> Array:
    """Return the first exit that fires for each sample, else the number of columns, integers of shape (n,)."""
    if fires.shape[1] == 0:
        return np.zeros(len(fires), dtype=np.intp)
    gone: Array = np.where(fires.any(axis=1), fires.argmax(axis=1), fires.shape[1])
    return gone
