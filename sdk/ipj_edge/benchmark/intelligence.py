"""The headline metric, intelligence per joule, and the figures derived from joules."""

from __future__ import annotations

import math

from ipj_edge.benchmark.results import Accuracy
from ipj_edge.values import EnergyPerInference, Interval


def intelligence_per_joule(accuracy: Accuracy | None, energy: EnergyPerInference) -> Interval | None:
    """Return expected correct answers per joule: ipj = accuracy · N / E = accuracy / (joules per inference).

    Numerator: share of correct answers (top-1, dimensionless). Denominator: gross joules per inference. The interval
    joins both 95 % half-widths in log space, (u_r/r)² = (u_a/a)² + (u_E/E)². The systematic gain error of the probe
    is not in it: it cancels in ratios on one probe.

    Returns:
        None without an accuracy, without joules, or when either is 0: then there is no rate.
    """
    if accuracy is None or energy.value is None or accuracy.value <= 0 or energy.value <= 0:
        return None
    spread = math.hypot(
        _relative(accuracy.value, accuracy.low, accuracy.high), _relative(energy.value, energy.low, energy.high)
    )
    value = accuracy.value / energy.value
    return Interval(value=value, low=value * math.exp(-spread), high=value * math.exp(spread))


def joules_per_correct(ipj: Interval | None) -> Interval | None:
    """Return joules per correct answer, 1 / ipj."""
    if ipj is None:
        return None
    return Interval(value=1 / ipj.value, low=1 / ipj.high, high=1 / ipj.low)


def energy_delay_product(energy: EnergyPerInference, delay_s: float) -> Interval | None:
    """Return joules per inference times the seconds of one (Gonzalez and Horowitz 1996), in joule-seconds.

    The interval is the energy's. None without joules.
    """
    if energy.value is None:
        return None
    low, high = (energy.value if end is None else end for end in (energy.low, energy.high))
    return Interval(value=energy.value * delay_s, low=low * delay_s, high=high * delay_s)


def _relative(value: float, low: float | None, high: float | None) -> float:
    return 0.0 if low is None or high is None else (high - low) / 2 / value
