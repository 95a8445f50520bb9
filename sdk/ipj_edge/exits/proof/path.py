"""A one-parameter family of policies through an anchor, from never exiting to always: what the test walks along."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ipj_edge.protocols import Array

STEPS = 400
_BELOW_ANCHOR = 14.0  # as far past the anchor as the walk may come: a factor of a million in the odds
_TINY = 1e-16


class _Line(NamedTuple):
    """A range of scores laid out on the whole line, so that one shift is meant alike for all of them.

    Scores between two ends become log odds, with one end the logarithm of the distance to it, else they stay.
    """

    low: float
    high: float

    def to(self, scores: Array) -> Array:
        """Return where scores lie on the line; at an end, as far out as floats can tell."""
        width = 1.0 if self.open_above or self.open_below else self.high - self.low
        above = scores if self.open_below else np.log(np.maximum((scores - self.low) / width, _TINY))
        if self.open_above:
            return above
        below = np.log(np.maximum((self.high - scores) / width, _TINY))
        return -below if self.open_below else above - below

    @property
    def open_below(self) -> bool:
        """True when there is no smallest score."""
        return math.isinf(self.low)

    @property
    def open_above(self) -> bool:
        """True when there is no largest score."""
        return math.isinf(self.high)

    def back(self, places: Array) -> Array:
        """Return the scores at places on the line; the ends of the range are reached."""
        if self.open_below:
            return places if self.open_above else self._closed_above(places, self.high - np.exp(-places))
        if self.open_above:
            return self._closed_below(places, self.low + np.exp(places))
        scores = self.low + (self.high - self.low) / (1 + np.exp(-places))
        return self._closed_below(places, self._closed_above(places, scores))

    def _closed_below(self, places: Array, scores: Array) -> Array:
        return np.where(places <= self.to(np.array(self.low)), self.low, scores)

    def _closed_above(self, places: Array, scores: Array) -> Array:
        return np.where(places >= self.to(np.array(self.high)), self.high, scores)


def anchored_path(scores: Array, anchor: Array, bounds: tuple[float, float], steps: int = STEPS) -> Array:
    """Return a nested family of policies through an anchor, safest first, of shape (steps + 1, exits − 1).

    The first never exits. Then all thresholds fall together by one shift of their log odds, through the anchor and past
    it; an exit that the anchor never uses stays closed.

    Args:
        scores: Scores of the samples the anchor was found on, of shape (n, exits − 1).
        anchor: Its thresholds; inf for never.
        bounds: Smallest and largest score of the rule.
        steps: Steps after the first.
    """
    line = _Line(*bounds)
    unit = _spread(scores) if line.open_below and line.open_above else 1.0
    used = np.isfinite(anchor)
    start = line.to(anchor[used])
    top = line.to(np.where(np.isfinite(scores), scores, -math.inf).max(axis=0, initial=-math.inf)[used])
    # From so high that nothing leaves at any exit.
    first = float((top - start).max(initial=0.0)) / unit + 1.0
    shifts = np.linspace(first, -_BELOW_ANCHOR, steps)
    thresholds = line.back(start + unit * shifts[:, None])
    # Above the anchor, a threshold that has come to the end of the range means never: scores may lie on the end.
    thresholds[(shifts[:, None] > 0) & (thresholds >= line.high)] = math.inf
    path = np.full((steps + 1, len(anchor)), math.inf)
    path[1:, used] = thresholds
    return path


def _spread(scores: Array) -> float:
    """Return a unit for scores without ends: their standard deviation, or 1 where they do not differ."""
    finite = scores[np.isfinite(scores)]
    return float(finite.std()) or 1.0 if finite.size else 1.0
