"""Trained activation ranges, found again in an engine's file by what passes there.

Every converter has names of its own for tensors. But the smallest and largest value of a tensor over the calibration
samples are the same in every engine, whatever its layout, to within rounding: by them the trained range is found.
"""

from __future__ import annotations

from collections.abc import Mapping

from ipj_edge.values import ActivationRange, TrainedRanges

# Float engines differ by some 1e-6 of a tensor's span.
_TOLERANCE = 1e-4


def find_range(ranges: TrainedRanges, low: float, high: float) -> ActivationRange | None:
    """Return the trained range of the place where just these extremes pass; None where there is none.

    Args:
        ranges: Trained ranges, in the network's order.
        low: Smallest value of a tensor over the calibration samples, in an engine's float run.
        high: Largest value, likewise.
    """
    best, found = _TOLERANCE, None
    for one in ranges.activations:
        span = max(one.seen_high - one.seen_low, abs(one.seen_high), abs(one.seen_low), 1e-30)
        distance = max(abs(one.seen_low - low), abs(one.seen_high - high)) / span
        if distance < best and one.low < one.high:
            best, found = distance, one
    return found


def find_ranges(ranges: TrainedRanges, seen: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """Return the trained (low, high) of every tensor that has one, by the engine's name for it."""
    found = {name: find_range(ranges, low, high) for name, (low, high) in seen.items()}
    return {name: (one.low, one.high) for name, one in found.items() if one is not None}
