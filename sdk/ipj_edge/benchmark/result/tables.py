"""A result as CSV for a spreadsheet and as Markdown for a pull request."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

from ipj_edge.benchmark.result.schema import Accuracy, BenchResult, Entry
from ipj_edge.energy import Amount
from ipj_edge.units import interval_text, joules_text, seconds_text

TableCell = str | int | float | None


def _end(known: Accuracy | Amount | None, which: str = "value") -> float | None:
    """Return the value, or an end, of what may not be known."""
    return None if known is None else getattr(known, which)


def _thousand(entry: Entry) -> float | None:
    value = entry.joules_per_inference.value
    return None if value is None else 1000 * value


_COLUMNS: dict[str, Callable[[Entry], TableCell]] = {
    "bundle": lambda entry: entry.bundle,
    "target": lambda entry: entry.target,
    "precision": lambda entry: entry.precision,
    "scenario": lambda entry: entry.scenario,
    "samples_per_query": lambda entry: entry.samples_per_query,
    "every_s": lambda entry: entry.every_s,
    "threads": lambda entry: entry.effective[0].threads if entry.effective else None,
    "bytes": lambda entry: entry.bytes,
    "metric": lambda entry: None if entry.accuracy is None else entry.accuracy.metric,
    "accuracy": lambda entry: _end(entry.accuracy),
    "accuracy_low": lambda entry: _end(entry.accuracy, "low"),
    "accuracy_high": lambda entry: _end(entry.accuracy, "high"),
    "load_s": lambda entry: entry.load_s,
    "first_s": lambda entry: entry.first_s,
    "latency_p50_s": lambda entry: entry.latency_s.p50,
    "latency_p90_s": lambda entry: entry.latency_s.p90,
    "latency_p99_s": lambda entry: entry.latency_s.p99,
    "latency_mean_s": lambda entry: entry.latency_s.mean,
    "cpu_s_per_inference": lambda entry: entry.cpu_s_per_inference,
    "throughput_hz": lambda entry: entry.throughput_hz,
    "joules_per_inference": lambda entry: entry.joules_per_inference.value,
    "joules_low": lambda entry: entry.joules_per_inference.low,
    "joules_high": lambda entry: entry.joules_per_inference.high,
    "provenance": lambda entry: entry.joules_per_inference.provenance,
    "boundary": lambda entry: entry.joules_per_inference.boundary,
    "probe": lambda entry: entry.joules_per_inference.probe,
    "joules_reason": lambda entry: entry.joules_per_inference.reason,
    "joules_per_1000": _thousand,
    "correct_per_joule": lambda entry: _end(entry.ipj),
    "joules_per_correct": lambda entry: _end(entry.joules_per_correct),
    "energy_delay_js": lambda entry: _end(entry.energy_delay_js),
    "tops_per_watt": lambda entry: entry.tops_per_watt,
    "carbon_g_per_1000": lambda entry: _end(entry.cost.carbon_g if entry.cost else None),
    "price_per_1000": lambda entry: _end(entry.cost.price if entry.cost else None),
    "currency": lambda entry: entry.cost.currency if entry.cost else None,
    "contention": lambda entry: str(entry.contention).lower(),
    "warnings": lambda entry: "; ".join(entry.warnings),
}


def to_csv(result: BenchResult) -> str:
    """Return one row an entry; what is not known is an empty cell, never 0."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows(
        ["" if (cell := get(entry)) is None else cell for get in _COLUMNS.values()] for entry in result.results
    )
    return stream.getvalue()


def to_markdown(result: BenchResult) -> str:
    """Return warnings and a table for a pull request."""
    lines = [
        f"> **{entry.bundle}** ({mode_text(entry)}): {text}" for entry in result.results for text in entry.warnings
    ]
    lines += [""] if lines else []
    lines += [
        "| bundle | scenario | accuracy | p50 | p99 | CPU-s/inf | J/inf | energy is | correct/J |",
        "|---|---|--:|--:|--:|--:|--:|---|--:|",
        *(_row(entry) for entry in result.results),
        "",
        f"{result.environment.get('cpu', 'unknown CPU')}, {_versions(result)}; 95 % intervals over windows.",
    ]
    return "\n".join(line.replace("\n", " ") for line in lines) + "\n"


def mode_text(entry: Entry) -> str:
    """Return scenario, samples a query, pace and threads in a few words: ``single-stream every 20.0 ms, 2 threads``."""
    text = entry.scenario
    if entry.samples_per_query > 1:
        text += f" of {entry.samples_per_query}"
    if entry.every_s is not None:
        text += f" every {seconds_text(entry.every_s)}"
    if entry.early_exit == "off":
        text += ", no early exit"
    threads = entry.effective[0].threads if entry.effective else None
    return text if threads is None else f"{text}, {threads} thread{'' if threads == 1 else 's'}"


def _row(entry: Entry) -> str:
    energy = entry.joules_per_inference
    cells = (
        f"`{entry.bundle}`",
        mode_text(entry),
        "—" if entry.accuracy is None else f"{100 * entry.accuracy.value:.2f} %",
        seconds_text(entry.latency_s.p50),
        seconds_text(entry.latency_s.p99),
        seconds_text(entry.cpu_s_per_inference),
        "—" if energy.value is None else interval_text(energy.value, energy.low, energy.high, joules_text),
        f"{energy.provenance}, {energy.boundary} ({energy.probe})" if energy.value is not None else energy.reason,
        "—" if entry.ipj is None else f"{entry.ipj.value:.4g}",
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _versions(result: BenchResult) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(result.created_with.items()))
