"""Two energies on one probe: their ratio, in which the probe's gain error cancels."""

from __future__ import annotations

import math

from ipj_edge.errors import ConfigError
from ipj_edge.values import EnergyPerInference, Interval


def ratio(a: EnergyPerInference, b: EnergyPerInference) -> Interval:
    """Return a/b with its 95 % interval, from the spread of both alone.

    The errors combine in log space, (u_r/r)² = (u_a/a)² + (u_b/b)², which keeps the interval positive. Take the
    windows of a and b in turn (A B A B): then drift of the machine hits both.

    Raises:
        ConfigError: the two come from different probes, boundaries or provenances, or one has no value or
            interval.
    """
    if (a.probe, a.boundary, a.provenance) != (b.probe, b.boundary, b.provenance):
        raise ConfigError(
            "a ratio needs one probe on both sides, or its gain error does not cancel: got "
            f"{a.probe} ({a.provenance}, {a.boundary}) and {b.probe} ({b.provenance}, {b.boundary})"
        )
    value_a, spread_a = _spread(a)
    value_b, spread_b = _spread(b)
    value, half = value_a / value_b, math.hypot(spread_a, spread_b)
    return Interval(value=value, low=value * math.exp(-half), high=value * math.exp(half))


def _spread(energy: EnergyPerInference) -> tuple[float, float]:
    """Return the value in joules and the half width of its interval as a share of it."""
    if energy.value is None or energy.high is None or energy.value <= 0:
        raise ConfigError(f"a ratio needs two energies with intervals: {energy.reason or 'measure more windows'}")
    return energy.value, (energy.high - energy.value) / energy.value
