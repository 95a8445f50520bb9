"""Quality targets: what an entry has to reach for its speed to count, and the form MLPerf Tiny reports in."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

import msgspec

from ipj_edge.benchmark.result.figures import FIGURES
from ipj_edge.benchmark.result.schema import Entry, QualityTarget

# MLPerf Tiny, run rules: five windows of at least ten seconds each, the median of the five.
WINDOWS = 5
WINDOW_S = 10.0


class TinyForm(msgspec.Struct, frozen=True, kw_only=True):
    """One entry as MLPerf Tiny reports it: medians over windows.

    The range over five windows is a 93.75 % interval of the median (order statistics).

    Attributes:
        inferences_per_s: Median over the windows.
        joules_per_inference: Median over the windows; None with a reason.
        joules_range: Smallest and largest of them; None likewise.
        by_the_rules: Five windows of at least ten seconds each, all of them with joules.
        reason: What is missing of that.
    """

    inferences_per_s: float
    joules_per_inference: float | None
    joules_range: tuple[float, float] | None
    by_the_rules: bool
    reason: str = ""


def judged(entry: Entry, at_least: Mapping[str, float]) -> Entry:
    """Return the entry with its quality targets judged."""
    if not at_least:
        return entry
    targets = tuple(_target(entry, figure, least) for figure, least in at_least.items())
    return msgspec.structs.replace(entry, targets=targets)


def tiny_form(entry: Entry) -> TinyForm:
    """Return an entry in the form of MLPerf Tiny."""
    rates = [window.inferences / window.seconds for window in entry.windows]
    joules = [window.joules / window.inferences for window in entry.windows if window.joules is not None]
    missing = []
    if len(entry.windows) != WINDOWS or min(window.seconds for window in entry.windows) < WINDOW_S:
        missing.append(f"the rules ask for {WINDOWS} windows of at least {WINDOW_S:g} s")
    if len(joules) < len(entry.windows):
        missing.append(entry.joules_per_inference.reason or "a window has no joules")
    elif entry.joules_per_inference.provenance != "measured":
        missing.append(f"joules are {entry.joules_per_inference.provenance}")
    return TinyForm(
        inferences_per_s=median(rates),
        joules_per_inference=median(joules) if joules else None,
        joules_range=(min(joules), max(joules)) if joules else None,
        by_the_rules=not missing,
        reason="; ".join(missing),
    )


def _target(entry: Entry, figure: str, least: float) -> QualityTarget:
    known = {score.metric: score.value for score in entry.quality}
    value = known.get(figure) if figure in known or figure not in FIGURES else FIGURES[figure].value(entry)
    if value is None:
        reasons = [score.reason for score in entry.quality if score.metric == figure and score.reason]
        reason = reasons[0] if reasons else entry.accuracy_reason or f"the bench has no {figure}"
        return QualityTarget(figure=figure, least=least, reason=reason)
    return QualityTarget(figure=figure, least=least, value=value, met=value >= least)
