"""One self-contained HTML page of results: opens from disk, needs no network, reads on a phone, light and dark.

Tables are plain HTML and need no script. The charts are drawn by a small script of our own (``charts.js``) from data
inside the page; a content security policy in the page forbids every request and every other script.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import datetime
from html import escape
from importlib.resources import files
from string import Template

from ipj_edge.benchmark.report import parts
from ipj_edge.benchmark.report.tuned import is_tuned, read_tuned
from ipj_edge.benchmark.report.view import kind_text, view_of
from ipj_edge.benchmark.result.files import encode
from ipj_edge.benchmark.result.pairs import title
from ipj_edge.benchmark.result.schema import BenchResult, Entry
from ipj_edge.errors import DataError
from ipj_edge.exits import TunedBundle

__all__ = ["is_tuned", "read_tuned", "render"]


def render(results: Sequence[BenchResult], tuned: Sequence[TunedBundle] = ()) -> str:
    """Return the page for one or several results, with the tunings of early exits.

    Raises:
        DataError: there is nothing to show, or a value is no finite number.
    """
    entries = tuple(entry for result in results for entry in result.results)
    if not results or not entries:
        raise DataError("nothing to report: the results hold no entries")
    script, style = _asset("charts.js"), _asset("style.css")
    # "<" must not end the script block it stands in.
    data = encode(view_of(entries, tuned)).decode().replace("<", "\\u003c")
    first = results[0]
    name = first.data or "golden inputs"
    return Template(_asset("page.html")).substitute(
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        title=escape(f"ipj-edge: {name}"),
        heading="Intelligence per joule",
        subtitle=escape(f"{len(entries)} measurements on {name}{_when(first)}"),
        chips="".join(f'<span class="chip">{escape(text)}</span>' for text in _chips(first)),
        style=style,
        script=script,
        data=data,
        body="\n".join(_body(results, entries, tuned)),
        footer=_FOOTER,
    )


_FOOTER = (
    "Correct answers per joule = accuracy ÷ (joules per inference), gross. Intervals are 95 %: Student's t over "
    "windows for energy, Wilson for accuracy; the sensor's gain error is not in them. Joules of different provenance "
    "or boundary are never ranked together. This page makes no request of any kind."
)


def _body(results: Sequence[BenchResult], entries: Sequence[Entry], tuned: Sequence[TunedBundle]) -> list[str]:
    found = [
        parts.warnings(entries, tuned),
        parts.cards(entries),
        parts.summary(entries),
        _pareto(entries),
        _latencies(),
        _side_by_side(_windows(entries), _reliability(entries)),
        _exits(entries),
        _tuning(tuned),
        parts.energy(entries),
        parts.quality(entries),
        parts.settings(entries),
        *(parts.environment(result) for result in results),
        "<noscript><section>The charts need JavaScript; everything they show is in the tables.</section></noscript>",
    ]
    return [part for part in found if part]


def _pareto(entries: Sequence[Entry]) -> str:
    able = [entry for entry in entries if entry.ipj is not None]
    kinds = list(dict.fromkeys(kind_text(entry) for entry in able))
    if not kinds:
        return ""
    pick = _select("kind", "joules", [(kind, kind) for kind in kinds]) if len(kinds) > 1 else ""
    note = (
        "Bars are 95 % intervals; the dashed line joins what nothing else beats. Only joules of one kind share a plot."
    )
    return _chart(
        "pareto", "Accuracy against joules", note, pick, extra=f' data-kind="{escape(kinds[0])}"', legend=True
    )


def _latencies() -> str:
    note = "Every query of the run; thick line p50, thin lines p90 and p99."
    return _chart("latency", "Latency", note, "", legend=True)


def _windows(entries: Sequence[Entry]) -> str:
    options = [(str(index), title(entry)) for index, entry in enumerate(entries)]
    note = '<p class="soft small" id="window-note"></p>'
    return _chart("windows", "Windows and power", "", _select("entry", "measurement", options), after=note)


def _exits(entries: Sequence[Entry]) -> str:
    if not any(len(entry.exits) > 1 for entry in entries):
        return ""
    return _chart("exits", "Where inputs left", "Share of inputs that each exit answered, and how right it was.", "")


def _reliability(entries: Sequence[Entry]) -> str:
    if not any(entry.reliability for entry in entries):
        return ""
    note = "On the diagonal, a confidence of 90 % is right 90 % of the time. Larger dots are more samples."
    return _chart("reliability", "Reliability of confidences", note, "")


def _side_by_side(*charts: str) -> str:
    return f'<div class="two">{"".join(charts)}</div>'


def _tuning(tuned: Sequence[TunedBundle]) -> str:
    if not any(one.front for one in tuned):
        return parts.stages(tuned)
    note = "Every point is a set of thresholds, judged on samples it was not searched on; the large one was chosen."
    return _chart("tuning", "Tuning of the exits", note, "") + parts.stages(tuned)


def _chart(
    name: str, heading: str, note: str, pick: str, *, extra: str = "", legend: bool = False, after: str = ""
) -> str:
    below = f'<p class="soft small">{escape(note)}</p>' if note else ""
    keys = '<div class="legend" data-legend></div>' if legend else ""
    return (
        f'<section id="{name}"><h2>{escape(heading)}</h2>{below}{pick}{keys}'
        f'<div class="chart" data-plot="{name}"{extra}></div>{after}</section>'
    )


def _select(name: str, label: str, options: Sequence[tuple[str, str]]) -> str:
    drawn = "".join(f'<option value="{escape(value, quote=True)}">{escape(text)}</option>' for value, text in options)
    named = f'<label for="{name}" class="small soft">{label}</label>'
    return f'<div class="pick">{named}<select id="{name}">{drawn}</select></div>'


def _chips(result: BenchResult) -> list[str]:
    facts = result.environment
    versions = [f"{name} {text}" for name, text in sorted(result.created_with.items())]
    named = {"cpus": "{} CPUs", "affinity": "{} usable", "cpu_quota": "quota {}", "governor": "governor {}"}
    machine = [facts[name] for name in ("cpu", "isa", "kernel") if name in facts]
    machine += [text.format(facts[name]) for name, text in named.items() if name in facts]
    return [*machine, *versions]


def _when(result: BenchResult) -> str:
    if not result.started:
        return ""
    return f", {datetime.fromisoformat(result.started).strftime('%Y-%m-%d %H:%M UTC')}"


def _asset(name: str) -> str:
    return (files(__name__) / name).read_text(encoding="utf-8").strip()
