"""Trained activation ranges, found again in an engine's file by what passes there.

Every converter has names of its own for tensors. But the smallest and largest value of a tensor over the calibration
samples are the same in every engine, whatever its layout, to within rounding: by them the trained range is found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import wraps
from typing import Any

import msgspec

from ipj_edge.protocols import ConversionTask, StageFiles
from ipj_edge.values import ActivationRange, TrainedRanges

# Float engines differ by some 1e-6 of a tensor's span.
_TOLERANCE = 1e-4
_NAMED = 5

Convert = Callable[[Any, ConversionTask], StageFiles]

# Names of ranges that found no tensor, while a conversion is watched: quantizers are too deep to hand them back.
_strays: ContextVar[list[str] | None] = ContextVar("_strays", default=None)


def notes_stray_ranges(convert: Convert) -> Convert:
    """Let a converter's ``convert`` note the trained ranges that match no tensor of the file it made."""

    @wraps(convert)
    def watched(self: Any, task: ConversionTask) -> StageFiles:
        if task.ranges is None or _strays.get() is not None:
            return convert(self, task)
        names: list[str] = []
        token = _strays.set(names)
        try:
            files = convert(self, task)
        finally:
            _strays.reset(token)
        return msgspec.structs.replace(files, notes=(*files.notes, *_note(names, task.ranges)))

    return watched


def _note(names: list[str], ranges: TrainedRanges) -> tuple[str, ...]:
    if not names:
        return ()
    shown = ", ".join(names[:_NAMED]) + (" …" if len(names) > _NAMED else "")
    return (
        f"{len(names)} of {len(ranges.activations)} trained activation ranges match no tensor of this engine's file "
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


def find_ranges(ranges: TrainedRanges, seen: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """Return the trained (low, high) of every tensor that has one, by the engine's name for it."""
    found = {name: find_range(ranges, low, high) for name, (low, high) in seen.items()}
    strays = _strays.get()
    if strays is not None:
        used = {id(one) for one in found.values() if one is not None}
        strays += [one.name for one in ranges.activations if id(one) not in used]
    return {name: (one.low, one.high) for name, one in found.items() if one is not None}
