"""Is a new result worse than a baseline? A gate for continuous integration that noise does not close.

A figure fails when it is worse by more than its limit *and* worse at all with confidence: Welch's test on the windows
of both, at a one-sided level of 5 % shared out over all figures tested (Bonferroni), so that two runs of the same
thing pass at least 19 times out of 20 however many figures there are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import msgspec

from ipj_edge.benchmark.result.figures import Figure, figure_named, windows_of
from ipj_edge.benchmark.result.pairs import Difference, Pair, Pairing, differences, pair_up, title
from ipj_edge.benchmark.result.schema import BenchResult
from ipj_edge.errors import ConfigError, DataError
from ipj_edge.stats import ratio_of_means
from ipj_edge.values import Interval

Verdict = Literal["pass", "regression", "inconclusive", "faster", "not judged"]

# False alarms allowed over a whole comparison.
LEVEL = 0.05
# A change for the better by more than this is more often a fault than a feat.
SUSPICIOUS = 0.30

# Worse by more than this share fails. Latency of a tail and of a few windows is noisy: wider.
MAX_REGRESSION: dict[str, float] = {
    "joules_per_inference": 0.05,
    "cpu_s_per_inference": 0.05,
    "latency_s.p50": 0.05,
    "latency_s.p99": 0.20,
    "throughput_hz": 0.05,
    "bytes": 0.10,
}
# Lower by more than this, absolute, fails.
MAX_DROP: dict[str, float] = {"accuracy": 0.005}


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much worse a figure may be; those given replace the defaults of the same name.

    Attributes:
        regression: Relative, by figure; None turns a default off.
        drop: Absolute, by accuracy or metric; likewise.
        allow: Differences between the two results that are accepted.
    """

    regression: Mapping[str, float | None] = {}
    drop: Mapping[str, float | None] = {}
    allow: Collection[Difference] = ()


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of one pair.

    Attributes:
        bundle: The new entry's title.
        figure: Name of the figure.
        base: Its value in the baseline.
        new: Its value in the new result.
        change: Relative change, or absolute for a drop; above 0 is worse.
        low: Lower end of the change's interval; None without windows.
        high: Upper end, likewise.
        limit: What is allowed.
        is_drop: Whether change and limit are absolute.
        verdict: ``regression`` fails; ``inconclusive`` is worse than allowed but within the noise.
        reason: Why a figure was not judged, or what to look at.
    """

    bundle: str
    figure: str
    base: float | None
    new: float | None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    limit: float
    is_drop: bool = False
    verdict: Verdict
    reason: str = ""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A whole comparison.

    Attributes:
        checks: Every figure of every pair.
        notes: What a reader has to know.
        regressed: True when a figure fails.
    """

    checks: tuple[Check, ...]
    notes: tuple[str, ...]
    regressed: bool


class _Rule(msgspec.Struct, frozen=True, kw_only=True):
    figure: Figure
    limit: float
    is_drop: bool
    asked: bool


def compare(base: BenchResult, new: BenchResult, limits: Limits | None = None) -> Comparison:
    """Compare a new result with a baseline.

    Raises:
        DataError: no entry of the one belongs to one of the other, or an entry of the baseline is missing.
        ConfigError: an unknown figure, or the two differ in what their figures mean.
    """
    limits = limits or Limits()
    pairing = pair_up(base.results, new.results)
    _check_pairing(pairing, limits.allow)
    notes = [*_machine_notes(base, new), *(f"{title(entry)}: not in the baseline" for entry in pairing.only_new)]
    for pair in pairing.pairs:
        found = differences(pair)
        refused = {kind: text for kind, text in found.items() if kind not in limits.allow}
        if refused:
            kinds = " ".join(f"--allow {kind}" for kind in refused)
            raise ConfigError(
                f"{title(pair.new)} cannot be compared: {'; '.join(refused.values())}; add {kinds} to do it"
            )
        notes += [f"{title(pair.new)}: {text} (allowed)" for text in found.values()]
    jobs = [(pair, rule) for pair in pairing.pairs for rule in _rules(pair, limits)]
    tested = sum(_windows(pair, rule) is not None for pair, rule in jobs)
    checks = tuple(_check(pair, rule, LEVEL / max(1, tested)) for pair, rule in jobs)
    regressed = any(check.verdict == "regression" for check in checks)
    return Comparison(checks=checks, notes=tuple(notes), regressed=regressed)


def _check_pairing(pairing: Pairing, allow: Collection[Difference]) -> None:
    if not pairing.pairs:
        names = ", ".join(title(entry) for entry in (*pairing.only_base, *pairing.only_new)[:4])
        raise DataError(f"nothing to compare: no entry of the one result belongs to one of the other ({names} …)")
    if pairing.only_base and "missing" not in allow:
        names = ", ".join(title(entry) for entry in pairing.only_base)
        raise DataError(f"the new result lacks what the baseline has: {names}; measure it too, or say --allow missing")


def _machine_notes(base: BenchResult, new: BenchResult) -> list[str]:
    watched = ("cpu", "isa", "governor", "affinity", "cpu_quota")
    return [
        f"the two were measured under different conditions: {name} was {base.environment.get(name, 'not known')}, "
        f"is {new.environment.get(name, 'not known')}"
        for name in watched
        if base.environment.get(name) != new.environment.get(name)
    ]


def _rules(pair: Pair, limits: Limits) -> list[_Rule]:
    """Return what to check of a pair: defaults that apply, and all that was asked for."""
    both = pair.base, pair.new
    rules = []
    for given, defaults, is_drop in ((limits.regression, MAX_REGRESSION, False), (limits.drop, MAX_DROP, True)):
        for name, limit in {**defaults, **given}.items():
            figure = figure_named(name, *both)
            if is_drop and figure.kind != "quality":
                raise ConfigError(
                    f"--max-drop {name}: a drop is of accuracy or of a metric's score; say --max-regression"
                )
            if limit is not None and (name in given or _applies(figure, pair)):
                rules.append(_Rule(figure=figure, limit=limit, is_drop=is_drop, asked=name in given))
    return rules


def _applies(figure: Figure, pair: Pair) -> bool:
    """Offline is about throughput, the others about latency; a pace sets the throughput by itself."""
    if figure.name == "throughput_hz":
        return pair.new.scenario == "offline"
    return not (figure.name.startswith("latency_s") and pair.new.scenario == "offline")


def _check(pair: Pair, rule: _Rule, level: float) -> Check:
    base, new = rule.figure.value(pair.base), rule.figure.value(pair.new)
    blank = Check(
        bundle=title(pair.new),
        figure=rule.figure.name,
        base=base,
        new=new,
        limit=rule.limit,
        is_drop=rule.is_drop,
        verdict="not judged",
    )
    reason = _why_not(pair, rule, base, new)
    if reason or base is None or new is None:
        return msgspec.structs.replace(blank, reason=reason)
    if rule.is_drop:
        change = base - new if rule.figure.higher_is_better else new - base
        # Sums of floats must not turn a drop of exactly the limit into more than it.
        verdict: Verdict = "regression" if change > rule.limit + 1e-12 else "pass"
        return msgspec.structs.replace(blank, change=change, verdict=verdict)
    return _judged(blank, pair, rule, level)


def _why_not(pair: Pair, rule: _Rule, base: float | None, new: float | None) -> str:
    """Return why a figure cannot be judged, or an empty text.

    Raises:
        ConfigError: it was asked for and is not there.
    """
    if base is None or new is None or (not rule.is_drop and (base <= 0 or new <= 0)):
        which = "the baseline" if base is None or base <= 0 else "the new result"
        if rule.asked:
            raise ConfigError(f"{title(pair.new)}: {which} has no {rule.figure.name} to compare")
        return f"{which} has none"
    busy = [name for name, entry in (("baseline", pair.base), ("new result", pair.new)) if entry.contention]
    if busy and rule.figure.kind == "wall" and not rule.asked:
        return f"the machine was busy ({' and '.join(busy)}): wall time says nothing, CPU time is judged"
    return ""


def _judged(blank: Check, pair: Pair, rule: _Rule, level: float) -> Check:
    windows = _windows(pair, rule)
    if windows is None:
        ratio = _worse(rule.figure, float(blank.new or 0), float(blank.base or 1))
        verdict: Verdict = "regression" if ratio - 1 > rule.limit else "pass"
        noise = "" if rule.figure.kind == "size" else "one figure, its noise is not known"
        return msgspec.structs.replace(blank, change=ratio - 1, verdict=verdict, reason=noise)
    interval = _ratio(rule.figure, windows, 1 - 2 * level)
    verdict, reason = _verdict(interval, rule.limit)
    return msgspec.structs.replace(
        blank,
        change=interval.value - 1,
        low=interval.low - 1,
        high=interval.high - 1,
        verdict=verdict,
        reason=reason,
    )


def _verdict(ratio: Interval, limit: float) -> tuple[Verdict, str]:
    if ratio.value > 1 + limit:
        if ratio.low > 1:
            return "regression", ""
        return "inconclusive", "worse than allowed, but within the noise: measure longer, or in turn (a suite)"
    if ratio.value < 1 / (1 + SUSPICIOUS) and ratio.high < 1:
        return "faster", "suspiciously better: check that it still does the same work"
    return "pass", ""


def _windows(pair: Pair, rule: _Rule) -> tuple[Sequence[float], Sequence[float]] | None:
    """Return the figure of the windows of both, or None where a test needs more of them."""
    base, new = windows_of(rule.figure, pair.base), windows_of(rule.figure, pair.new)
    if rule.is_drop or base is None or new is None or len(base) < 2 or len(new) < 2 or not min(*base, *new) > 0:
        return None
    return base, new


def _ratio(figure: Figure, windows: tuple[Sequence[float], Sequence[float]], confidence: float) -> Interval:
    """Return how many times worse the new windows are, with an interval."""
    base, new = windows
    return ratio_of_means(base, new, confidence) if figure.higher_is_better else ratio_of_means(new, base, confidence)


def _worse(figure: Figure, new: float, base: float) -> float:
    return base / new if figure.higher_is_better else new / base
