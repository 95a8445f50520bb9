"""What the charts are drawn from: plain data, embedded in the page as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipj_edge.benchmark.compare.pareto import rank
from ipj_edge.benchmark.result.pairs import title
from ipj_edge.benchmark.result.schema import Entry, WindowRecord, energy_kind
from ipj_edge.exits import TunedBundle


def view_of(entries: Sequence[Entry], tuned: Sequence[TunedBundle]) -> dict[str, Any]:
    """Return the data of all charts."""
    candidates = [one for group in rank(entries) for one in group.candidates]
    front = [one.entry for one in candidates if one.on_front]
    best = [group.chosen for group in rank(entries)]
    return {
        "entries": [_entry(entry, on_front=_has(front, entry), is_best=_has(best, entry)) for entry in entries],
        "tuned": [_tuned(one) for one in tuned],
    }


def kind_text(entry: Entry) -> str:
    """Return what an entry's joules are: ``measured, package``."""
    return ", ".join(map(str, energy_kind(entry)))


def short_name(entry: Entry) -> str:
    """Return a bundle's name without what every bundle's name ends with."""
    return entry.bundle.removesuffix(".ipj")


def _has(entries: Sequence[Entry | None], entry: Entry) -> bool:
    return any(one is entry for one in entries)


def _entry(entry: Entry, *, on_front: bool, is_best: bool) -> dict[str, Any]:
    energy, latency = entry.joules_per_inference, entry.latency_s
    accuracy = entry.accuracy
    return {
        "title": title(entry),
        "short": short_name(entry),
        "target": entry.target,
        "precision": entry.precision,
        "kind": kind_text(entry),
        "front": on_front,
        "best": is_best,
        "accuracy": None
        if accuracy is None
        else {"metric": accuracy.metric, "value": accuracy.value, "low": accuracy.low, "high": accuracy.high},
        "joules": {
            "value": energy.value,
            "low": energy.low,
            "high": energy.high,
            "reason": energy.reason,
            "provenance": energy.provenance,
            "boundary": energy.boundary,
        },
        "ipj": None if entry.ipj is None else {"value": entry.ipj.value},
        "cpu": entry.cpu_s_per_inference,
        "p50": latency.p50,
        "p90": latency.p90,
        "p99": latency.p99,
        "least": latency.least,
        "most": latency.most,
        "histogram": None
        if entry.latency_histogram is None
        else {"edges": entry.latency_histogram.edges_s, "counts": entry.latency_histogram.counts},
        "windows": [_window(window) for window in entry.windows],
        "trace": None if entry.trace is None else {"time": entry.trace.time_s, "power": entry.trace.power_w},
        "exits": [
            {
                "name": record.name,
                "share": record.share,
                "accuracy": None if record.accuracy is None else {"value": record.accuracy.value},
            }
            for record in entry.exits
        ],
        "reliability": [
            {"n": one.n, "confidence": one.confidence, "accuracy": one.accuracy} for one in entry.reliability
        ],
        "samples": sum(one.n for one in entry.reliability),
    }


def _window(window: WindowRecord) -> dict[str, Any]:
    return {
        "start": window.start_s,
        "seconds": window.seconds,
        "inferences": window.inferences,
        "joules": window.joules,
        "reason": window.reason,
        "cpu_s": window.cpu_s,
        "p50_s": window.p50_s,
        "p99_s": window.p99_s,
        "waited_s": window.waited_s,
        "frequency_hz": window.frequency_hz,
        "temperature_celsius": window.temperature_celsius,
    }


def _tuned(tuned: TunedBundle) -> dict[str, Any]:
    record = tuned.record
    points = [*(one.expected for one in tuned.front), record.expected, record.never]
    return {
        "name": tuned.name,
        "unit": record.costs.unit,
        "front": [
            {
                "cost": point.cost,
                "accuracy": point.accuracy.value if point.accuracy else 1 - point.risk,
                "leave": ", ".join(map(str, point.leavers[:-1])) or "none",
                "chosen": point is record.expected,
            }
            for point in points
        ],
    }
