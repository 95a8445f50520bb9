"""Trained activation ranges, found again in an engine's file by what passes there.

Every converter has names of its own for tensors. But the smallest and largest value of a tensor over the calibration
samples are the same in every engine, whatever its layout, to within rounding: by them the trained range is found.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ipj_edge.values import ActivationRange, TrainedRanges

# Float engines differ by some 1e-6 of a tensor's span.
_TOLERANCE = 1e-4
_NAMED = 5


class FoundRanges(NamedTuple):
    """Trained ranges by an engine's tensors.

    Attributes:
        ends: Trained (low, high) of every tensor that has one, by the engine's name for it.
        strays: Names of the ranges that match no tensor.
    """

    ends: dict[str, tuple[float, float]]
    strays: tuple[str, ...]


def notes_on_strays(strays: tuple[str, ...], ranges: TrainedRanges | None) -> tuple[str, ...]:
    """Return what a reader of the manifest has to know of trained ranges that match no tensor of the file."""
    if not strays or ranges is None:
        return ()
    shown = ", ".join(strays[:_NAMED]) + (" …" if len(strays) > _NAMED else "")
    return (
        f"{len(strays)} of {len(ranges.activations)} trained activation ranges match no tensor of this engine's file "
        f"({shown}): it rounds elsewhere, where calibration decides",
    )


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


def find_ranges(ranges: TrainedRanges, seen: Mapping[str, tuple[float, float]]) -> FoundRanges:
    """Find the trained range of every tensor.

    Args:
        ranges: Trained ranges, in the network's order.
        seen: Smallest and largest value of every tensor over the calibration samples, by the engine's name for it.
    """
    found = {name: find_range(ranges, low, high) for name, (low, high) in seen.items()}
    used = {id(one) for one in found.values() if one is not None}
    return FoundRanges(
        ends={name: (one.low, one.high) for name, one in found.items() if one is not None},
        strays=tuple(one.name for one in ranges.activations if id(one) not in used),
    )
