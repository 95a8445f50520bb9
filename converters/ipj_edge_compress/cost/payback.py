"""The payback point: after how many inferences a compression has earned back the joules it cost."""

from __future__ import annotations

import math

import msgspec

from ipj_edge.values import EnergyPerInference, Reading


class Payback(msgspec.Struct, frozen=True, kw_only=True):
    """Inferences until the energy saved equals the energy spent.

    Attributes:
        inferences: The point; None with a reason.
        low: Fewest, at the upper end of the saving's 95 % interval.
        high: Most, at its lower end; None where the saving may be nothing.
        reason: Why there is no point, or no upper end.
        saved_j: Joules saved by one inference.
    """

    inferences: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""
    saved_j: float | None = None


def payback(spent: Reading, before: EnergyPerInference, after: EnergyPerInference) -> Payback:
    """Return N = spent / (before − after), with the 95 % interval of the saving.

    The gain error of the probe is not in the interval: spent and saved joules come from one probe, so that it cancels.
    Joules of different provenance or boundary are not divided by each other.

    Args:
        spent: Energy of the compression.
        before: Joules per inference of the model before, on the target.
        after: Joules per inference of the model after, on the same target and probe.
    """
    if spent.joules is None:
        return Payback(inferences=None, reason=f"the energy spent is not known: {spent.reason}")
    for which, energy in (("before", before), ("after", after)):
        if energy.value is None:
            return Payback(inferences=None, reason=f"joules per inference {which} are not known: {energy.reason}")
    kinds = {(one.probe, one.boundary, one.provenance) for one in (spent, before, after)}
    if len(kinds) > 1:
        shown = ", ".join(sorted(f"{probe} ({boundary}, {source})" for probe, boundary, source in kinds))
        return Payback(inferences=None, reason=f"joules of different probes cannot be compared: {shown}")
    assert before.value is not None
    assert after.value is not None
    saved = before.value - after.value
    half = math.hypot(_half_width(before), _half_width(after))
    if saved <= 0:
        return Payback(inferences=None, reason="an inference costs no less than before: never", saved_j=saved)
    sure = saved - half
    return Payback(
        inferences=spent.joules / saved,
        low=spent.joules / (saved + half),
        high=spent.joules / sure if sure > 0 else None,
        reason="" if sure > 0 else "no upper end: the saving is within its error",
        saved_j=saved,
    )


def _half_width(energy: EnergyPerInference) -> float:
    if energy.low is None or energy.high is None:
        return 0.0
    return (energy.high - energy.low) / 2
