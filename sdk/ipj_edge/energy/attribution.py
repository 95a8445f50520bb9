"""Joules per inference from windows, which are the independent unit: gross first, net of idle second."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from ipj_edge.errors import ConfigError
from ipj_edge.stats import outliers, t_half_width, trend
from ipj_edge.values import EnergyPerInference, Interval, NetEnergy, Reading

# A drift of this share of the mean, if it is also significant, is worth a word; less is what a good bench shows.
DRIFT_SHARE = 0.01
ENOUGH_WINDOWS = 5


class _Windows(msgspec.Struct, frozen=True, kw_only=True):
    """Windows that have a figure.

    Attributes:
        joules: Joules of each.
        seconds: Length of each in seconds.
        inferences: Inferences finished in each.
        lost_j: Standard uncertainty of each from its ends, in joules: one update and one step.
    """

    joules: tuple[float, ...]
    seconds: tuple[float, ...]
    inferences: tuple[int, ...]
    lost_j: tuple[float, ...]


def per_inference(
    readings: Sequence[Reading], inferences: Sequence[int], idle: Sequence[Reading] = ()
) -> EnergyPerInference:
    """Return joules per inference with a 95 % Student t interval over windows.

    Gross is ΣE/ΣN with the ratio estimator's spread, which for windows of equal N is the plain mean and
    deviation. The interval holds what repeating the windows can show, and never less than the updates and steps
    lost at their ends; the gain error of the sensor stays apart, in ``accuracy``: more windows do not shrink it.

    Net is Σ(E − P_idle·T)/ΣN, P_idle the mean power of idle windows before and after the work.

    Args:
        readings: One reading a window, all of one probe.
        inferences: Inferences finished inside each window.
        idle: Readings of idle windows, at least one before and one after the work.

    Raises:
        ConfigError: readings of several probes, or counts that do not fit the readings.
    """
    _check(readings, inferences, idle)
    # A window without a figure knows less of the probe: neither its accuracy nor its note.
    first = next((one for one in readings if one.joules is not None), readings[0])
    used = _usable(readings, inferences)
    bad = [(index, reading) for index, reading in enumerate(readings) if reading.joules is None]
    gross = _ratio_of_sums(used, used.joules) if used.joules and min(used.inferences) > 0 else None
    return EnergyPerInference(
        value=gross.value if gross else None,
        reason="" if gross else _why_none(bad, readings),
        low=gross.low if gross and len(used.joules) > 1 else None,
        high=gross.high if gross and len(used.joules) > 1 else None,
        net=_net(used, gross, idle) if gross else None,
        provenance=first.provenance,
        boundary=first.boundary,
        probe=first.probe,
        windows=len(used.joules),
        inferences=sum(used.inferences),
        accuracy=first.accuracy,
        note="; ".join(_notes(used, bad, first, len(readings))),
    )


def _check(readings: Sequence[Reading], inferences: Sequence[int], idle: Sequence[Reading]) -> None:
    if not readings or len(readings) != len(inferences):
        raise ConfigError(
            f"one inference count a window is needed: got {len(readings)} windows and {len(inferences)} counts"
        )
    if any(count < 0 for count in inferences):
        raise ConfigError(f"inference counts cannot be negative: {list(inferences)}")
    sources = {(one.probe, one.boundary, one.provenance) for one in (*readings, *idle) if one.joules is not None}
    if len(sources) > 1:
        raise ConfigError(f"joules of different probes do not mix: {sorted(sources)}")


def _usable(readings: Sequence[Reading], inferences: Sequence[int]) -> _Windows:
    good = [(one, one.joules, n) for one, n in zip(readings, inferences, strict=True) if one.joules is not None]
    return _Windows(
        joules=tuple(joules for _, joules, _ in good),
        seconds=tuple(one.seconds for one, _, _ in good),
        inferences=tuple(n for _, _, n in good),
        lost_j=tuple(_lost_j(one, joules) for one, joules, _ in good),
    )


def _lost_j(reading: Reading, joules: float) -> float:
    """Return the standard uncertainty, in joules, of what a window loses at its two ends: u·P/√6 and q/√6."""
    update_j = reading.update_interval_s * joules / reading.seconds
    return math.sqrt((update_j**2 + reading.quantum_j**2) / 6)


def _ratio_of_sums(used: _Windows, joules: Sequence[float]) -> Interval:
    count, total = len(joules), sum(used.inferences)
    value = math.fsum(joules) / total
    lost = 2 * math.sqrt(math.fsum(lost**2 for lost in used.lost_j)) / total
    half = lost
    if count > 1:
        rest = np.asarray(joules) - value * np.asarray(used.inferences)
        deviation = math.sqrt(float(rest @ rest) / (count - 1)) * count / total
        spread = t_half_width(deviation, count)
        # From five windows on, the spread between them already shows what their ends lose.
        half = max(spread, lost) if count >= ENOUGH_WINDOWS else math.hypot(spread, lost)
    return Interval(value=value, low=max(0.0, value - half), high=value + half)


def _net(used: _Windows, gross: Interval, idle: Sequence[Reading]) -> NetEnergy:
    known = [(one, one.joules) for one in idle if one.joules is not None]
    if len(known) < 2:
        missing = [one.reason for one in idle if one.joules is None]
        why = f": {missing[0]}" if missing else ""
        return NetEnergy(value=None, reason=f"net of idle needs an idle window before and one after{why}")
    powers = [joules / one.seconds for one, joules in known]
    idle_w = math.fsum(powers) / len(powers)
    lost_w2 = math.fsum((_lost_j(one, joules) / one.seconds) ** 2 for one, joules in known)
    idle_error_w = math.sqrt(float(np.var(powers, ddof=1)) / len(powers) + lost_w2 / len(powers) ** 2)
    above = [joules - idle_w * seconds for joules, seconds in zip(used.joules, used.seconds, strict=True)]
    plain = _ratio_of_sums(used, above)
    value = math.fsum(above) / sum(used.inferences)
    half = math.hypot(plain.high - plain.value, 2 * idle_error_w * sum(used.seconds) / sum(used.inferences))
    if value <= half:
        return NetEnergy(
            value=None,
            reason=f"not distinguishable from idle ({value:.3g} ± {half:.3g} J); use more or longer windows",
            idle_w=idle_w,
        )
    if len(used.joules) < 2:
        return NetEnergy(value=value, idle_w=idle_w)
    return NetEnergy(value=value, low=value - half, high=value + half, idle_w=idle_w)


def _why_none(bad: Sequence[tuple[int, Reading]], readings: Sequence[Reading]) -> str:
    if len(bad) == len(readings):
        return bad[0][1].reason
    return "no inference was finished inside a window; make the windows longer"


def _notes(used: _Windows, bad: Sequence[tuple[int, Reading]], first: Reading, windows: int) -> list[str]:
    """Return what a reader has to know: lost windows, outliers (kept), drift, too few windows."""
    notes = [first.note] if first.note else []
    if bad and used.joules:
        notes.append(f"{len(bad)} of {windows} windows have no figure, window {bad[0][0] + 1}: {bad[0][1].reason}")
    if not used.joules or min(used.inferences) == 0:
        return notes
    if len(used.joules) == 1:
        notes.append("one window: no interval without a second")
    each = [joules / n for joules, n in zip(used.joules, used.inferences, strict=True)]
    middle = float(np.median(each))
    for index in outliers(each):
        if middle > 0:
            notes.append(f"window {index + 1} is {100 * (each[index] / middle - 1):+.1f} % off the median (kept)")
    line = trend(each)
    if line and line.significant and abs(line.change) > DRIFT_SHARE * middle > 0:
        notes.append(f"energy drifts by {100 * line.change / middle:+.1f} % over the windows: warm up longer")
    return notes
