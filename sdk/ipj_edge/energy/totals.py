"""Adding the readings of several probes, where nothing would be counted twice."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ipj_edge.errors import ConfigError
from ipj_edge.values import Boundary, Reading

# The only boundaries known not to overlap. A package reading may hold DRAM, and board, wall, module, battery and
# rails may hold anything.
_APART: frozenset[frozenset[Boundary]] = frozenset(
    frozenset(pair) for pair in (("package", "gpu"), ("dram", "gpu"), ("process", "gpu"))
)


def total(readings: Sequence[Reading]) -> Reading:
    """Add readings of one window if their boundaries lie apart; otherwise return a reading that says why not.

    A sum of measured and modelled joules is ``mixed``. Intervals add linearly: errors of sensors may share a
    cause.

    Raises:
        ConfigError: there is nothing to add.
    """
    if not readings:
        raise ConfigError("there are no readings to add")
    if len(readings) == 1:
        return readings[0]
    reason = _refusal(readings)
    joules = [one.joules for one in readings if one.joules is not None]
    lows = [one.low for one in readings if one.low is not None]
    highs = [one.high for one in readings if one.high is not None]
    sources = {one.provenance for one in readings}
    known = not reason and len(lows) == len(readings) == len(highs)
    return Reading(
        joules=None if reason else math.fsum(joules),
        reason=reason,
        seconds=max(one.seconds for one in readings),
        provenance=sources.pop() if len(sources) == 1 else "mixed",
        boundary="rails",
        probe=" + ".join(one.probe for one in readings),
        update_interval_s=max(one.update_interval_s for one in readings),
        quantum_j=max(one.quantum_j for one in readings),
        low=math.fsum(lows) if known else None,
        high=math.fsum(highs) if known else None,
        rails={} if reason else {f"{one.probe}/{rail}": j for one in readings for rail, j in one.rails.items()},
        coverage=min(one.coverage for one in readings),
        note="" if reason else f"the sum of {' and '.join(str(one.boundary) for one in readings)}",
    )


def _overlap(first: Boundary | None, second: Boundary | None) -> bool:
    """Say whether two boundaries may hold the same joules."""
    return frozenset((first, second)) not in _APART


def _refusal(readings: Sequence[Reading]) -> str:
    for index, one in enumerate(readings):
        if one.joules is None:
            return f"'{one.probe}' has no joules: {one.reason}"
        for other in readings[:index]:
            if _overlap(one.boundary, other.boundary):
                return (
                    f"joules of '{other.probe}' ({other.boundary}) and '{one.probe}' ({one.boundary}) are not "
                    "added: one may hold the other's"
                )
    return ""
