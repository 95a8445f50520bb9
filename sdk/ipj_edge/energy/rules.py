"""How long a window must be for its figure to be worth printing."""

from __future__ import annotations

import math

from ipj_edge.errors import ConfigError, ProbeUnavailableError
from ipj_edge.values import ProbeFacts

DEFAULT_ERROR = 0.05


def minimum_window_s(facts: ProbeFacts, error: float, power_w: float | None = None) -> float:
    """Return the shortest window, in seconds, whose sensor error stays below a relative error.

    The sensor's update interval u is lost at most once at the two ends together, so u/T bounds the error; twice
    that length leaves room for jitter: T ≥ 2·u/ε. A step q of the energy figure asks for T ≥ q/(ε·P).

    Args:
        facts: The probe's facts.
        error: Relative error wanted, e.g. 0.01.
        power_w: Power in watts, where known; without it the quantum rule is left out.

    Raises:
        ConfigError: the error is not between 0 and 1.
        ProbeUnavailableError: no window is long enough, because the power figure's own step is too coarse.
    """
    if not 0 < error < 1:
        raise ConfigError(f"the wanted error must be above 0 and below 100 %, got {100 * error:g} %")
    length_s = 2 * facts.update_interval_s / error
    if not power_w or power_w <= 0:
        return length_s
    if facts.resolution_w > 2 * error * power_w:
        raise ProbeUnavailableError(
            f"'{facts.name}' cannot reach ±{100 * error:g} % at {power_w:.3g} W with any window: its "
            f"power figure has steps of {facts.resolution_w:g} W; allow "
            f"±{50 * facts.resolution_w / power_w:.2g} % or use a finer meter"
        )
    return max(length_s, facts.quantum_j / (error * power_w))


def shortfall(needed_s: float, seconds: float, inferences: int) -> str:
    """Say how much longer a window must be, and how many inferences that is where they were counted."""
    text = f"run it {needed_s - seconds:.3g} s longer"
    if inferences > 0 and seconds > 0:
        more = math.ceil(inferences * needed_s / seconds) - inferences
        text += f" ({more} more inferences)"
    return text
