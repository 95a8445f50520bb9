"""Whether an image can be brought to an input as a rule says: one answer for the user's file and for a manifest."""

from __future__ import annotations

import numpy as np

from ipj_edge.values import Preprocessing

_LARGEST_SIDE = 1 << 15
_SMALLEST, _LARGEST = (float(limit) for limit in (np.finfo(np.float32).tiny, np.finfo(np.float32).max))


def why_no_image_fits(rule: Preprocessing) -> str:
    """Return why no image can be preprocessed by a rule; empty where one can."""
    channels = 1 if rule.channels == "L" else 3
    if not all(1 <= size <= _LARGEST_SIDE for size in rule.size):
        return f"size = {list(rule.size)}: expected height and width, 1 to {_LARGEST_SIDE} pixels"
    for name, values in (("scale", (rule.scale,)), ("mean", rule.mean), ("std", rule.std)):
        if len(values) not in (1, channels):
            return f"{name} has {len(values)} values: expected one, or one for each of {channels} channels"
        if not all(abs(value) <= _LARGEST for value in values):
            return f"{name} = {list(values)}: expected numbers that float32 can hold"
    if not all(abs(value) >= _SMALLEST for value in rule.std):
        return "std holds a 0, and values are divided by it"
    return ""
