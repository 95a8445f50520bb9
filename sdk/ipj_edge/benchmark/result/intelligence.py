"""The headline figure, intelligence per joule, and others derived from joules."""

from __future__ import annotations

import math

from ipj_edge.benchmark.result.schema import Accuracy
from ipj_edge.energy import Amount
from ipj_edge.values import EnergyPerInference


def intelligence_per_joule(accuracy: Accuracy | None, energy: EnergyPerInference) -> Amount | None:
    """Return expected correct answers per joule: ipj = accuracy · N / E = accuracy / (joules per inference).

    Numerator: share of correct answers (top-1, dimensionless). Denominator: gross joules per inference. The interval
    joins both 95 % half-widths in log space, (u_r/r)² = (u_a/a)² + (u_E/E)². The systematic gain error of the probe
    is not in it: it cancels in ratios on one probe. Joules without an interval (one window) leave the rate without
    one: that of the accuracy alone would promise too much.

    Returns:
        None without an accuracy, without joules, or when either is 0: then there is no rate.
    """
    if accuracy is None or energy.value is None or accuracy.value <= 0 or energy.value <= 0:
        return None
    value = accuracy.value / energy.value
    if energy.low is None or energy.high is None:
        return Amount(value=value)
    spread = math.hypot(
        (accuracy.high - accuracy.low) / 2 / accuracy.value, (energy.high - energy.low) / 2 / energy.value
    )
    return Amount(value=value, low=value * math.exp(-spread), high=value * math.exp(spread))


def joules_per_correct(ipj: Amount | None) -> Amount | None:
    """Return joules per correct answer, 1 / ipj."""
    if ipj is None:
        return None
    low, high = (None if end is None else 1 / end for end in (ipj.high, ipj.low))
    return Amount(value=1 / ipj.value, low=low, high=high)


def energy_delay_product(energy: EnergyPerInference, delay_s: float) -> Amount | None:
    """Return joules per inference times the seconds of one (Gonzalez and Horowitz 1996), in joule-seconds.

    The interval is the energy's. None without joules.
    """
    if energy.value is None:
        return None
    low, high = (None if end is None else end * delay_s for end in (energy.low, energy.high))
    return Amount(value=energy.value * delay_s, low=low, high=high)
