"""What the emulated load draws over time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Profile:
    """A current that changes in steps.

    Attributes:
        from_s: When each step begins, in seconds since the instrument started; the first is 0.
        current_a: Current of each step in amperes.
    """

    from_s: tuple[float, ...]
    current_a: tuple[float, ...]

    def at(self, time_s: Array) -> Array:
        """Return the current at times, shape as given."""
        step = np.searchsorted(np.array(self.from_s), time_s, side="right") - 1
        return np.asarray(np.array(self.current_a)[np.maximum(step, 0)], np.float64)


def constant(current_a: float) -> Profile:
    """Return a load that draws the same current always."""
    return Profile((0.0,), (current_a,))


def parse_steps(text: str) -> Profile:
    """Read ``0:0.010,2.5:0.050``: 10 mA, from 2.5 s on 50 mA.

    Raises:
        ValueError: the text is no such list.
    """
    steps = [part.split(":") for part in text.split(",")]
    if any(len(step) != 2 for step in steps):
        raise ValueError(f"steps are SECONDS:AMPERES,SECONDS:AMPERES,...; got {text!r}")
    return Profile(tuple(float(step[0]) for step in steps), tuple(float(step[1]) for step in steps))
