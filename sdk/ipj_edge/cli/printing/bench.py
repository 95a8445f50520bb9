"""Where a bench's figures go: files, stdout, the table for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ipj_edge.benchmark import BenchResult, Entry
    from ipj_edge.metrics import Score
    from ipj_edge.protocols import Array
    from ipj_edge.values import EnergyPerInference

KINDS = ("json", "csv", "markdown", "report")


def check_outputs(outputs: Mapping[str, str | None], *, force: bool) -> None:
    """Refuse, before the work, places that are taken.

    Raises:
        ConfigError: two outputs want the same place.
        DestinationError: a place is taken or cannot be written.
    """
    from ipj_edge.benchmark.result.files import check_free, samples_path
    from ipj_edge.errors import ConfigError

    places = ["-" if path == "-" else str(Path(path).resolve()) for path in outputs.values() if path is not None]
    twice = next((place for place in places if places.count(place) > 1), None)
    if twice is not None:
        raise ConfigError(f"only one output can go to {'stdout (-)' if twice == '-' else twice}")
    json_path = outputs["json"]
    beside = [] if json_path in (None, "-") else [samples_path(Path(str(json_path)))]
    check_free([*outputs.values(), *beside], force=force)


def finish(result: BenchResult, samples: Mapping[int, Array], outputs: Mapping[str, str | None], code: int = 0) -> int:
    """Print the table, write what was asked for and return the exit code.

    Args:
        result: What was measured.
        samples: Raw latencies by place in the result.
        outputs: Where to write each kind of output.
        code: Exit code of how the measurement ended; not 0 when it was interrupted.
    """
    from ipj_edge.errors import DataError

    if not result.results:
        if code:
            return code
        raise DataError("nothing was measured")
    # The table comes first: it is there even if the disk fails now.
    if "-" not in outputs.values():
        print_entries(result.results)
    _write(result, samples, outputs)
    return code


def _write(result: BenchResult, samples: Mapping[int, Array], outputs: Mapping[str, str | None]) -> None:
    import msgspec

    from ipj_edge.benchmark.report import render
    from ipj_edge.benchmark.result.files import encode, samples_path, write_samples
    from ipj_edge.benchmark.result.tables import to_csv, to_markdown

    json_path = outputs["json"]
    if json_path not in (None, "-"):
        beside = samples_path(Path(str(json_path)))
        write_samples(beside, samples)
        result = msgspec.structs.replace(result, samples_file=beside.name)
    made: dict[str, Callable[[], bytes]] = {
        "json": lambda: encode(result),
        "csv": lambda: to_csv(result).encode(),
        "markdown": lambda: to_markdown(result).encode(),
        "report": lambda: render([result]).encode(),
    }
    for kind, make in made.items():
        put(outputs[kind], make)


def put(path: str | None, make: Callable[[], bytes]) -> None:
    """Write to a file, to stdout for ``-``, or nowhere."""
    from ipj_edge.writing import write_file

    if path == "-":
        click.echo(make(), nl=False)  # as bytes: UTF-8 whatever the terminal's encoding is
    elif path is not None:
        write_file(Path(path), make())


def print_entries(entries: Sequence[Entry]) -> None:
    """Print the table of a bench, warnings first."""
    from ipj_edge.benchmark.result.tables import mode_text
    from ipj_edge.cli.printing import console as _console

    for entry in entries:
        for warning in entry.warnings:
            _console.warn(f"{entry.bundle} ({mode_text(entry)}): {warning}")
    columns = ("bundle", "target", "precision", "bytes", "scenario", "accuracy", "p50", "p99", "CPU-s/inf", "inf/s",
               "J/inf", "energy is", "correct/J")  # fmt: skip
    right = ("bytes", "p50", "p99", "CPU-s/inf", "inf/s", "J/inf", "correct/J")
    _console.table(columns, [_row(entry) for entry in entries], right=right)
    for entry in entries:
        if len(entry.exit_rates) > 1:
            _console.say(f"{entry.bundle}: exits answer {', '.join(f'{rate:.1%}' for rate in entry.exit_rates)}")
        if entry.joules_per_inference.value is None:
            _console.say(f"{entry.bundle}: no joules: {entry.joules_per_inference.reason}")
        for score in entry.quality:
            if entry.accuracy is None or score.metric != entry.accuracy.metric:
                _console.say(f"{entry.bundle}: {_score(score)}")


def _row(entry: Entry) -> tuple[str, ...]:
    from ipj_edge.benchmark.result.tables import mode_text
    from ipj_edge.cli.printing import console as _console

    accuracy, energy = entry.accuracy, entry.joules_per_inference
    return (
        entry.bundle,
        entry.target,
        entry.precision,
        f"{entry.bytes:,}",
        mode_text(entry),
        "—" if accuracy is None else f"{accuracy.value:.4f} ({accuracy.low:.4f} to {accuracy.high:.4f})",
        _console.seconds_text(entry.latency_s.p50),
        _console.seconds_text(entry.latency_s.p99),
        _console.seconds_text(entry.cpu_s_per_inference),
        f"{entry.throughput_hz:,.0f}" if entry.throughput_hz >= 100 else f"{entry.throughput_hz:.3g}",
        _joules(energy),
        "—" if energy.value is None else f"{energy.provenance}, {energy.boundary} ({energy.probe})",
        "—" if entry.ipj is None else f"{entry.ipj.value:.4g}",
    )


def _score(score: Score) -> str:
    if score.value is None:
        return f"{score.metric} —: {score.reason}"
    ends = "" if score.low is None else f" ({score.low:.4g} to {score.high:.4g})"
    return f"{score.metric} {score.value:.4g}{ends}, n = {score.n}"


def _joules(energy: EnergyPerInference) -> str:
    from ipj_edge.units import interval_text, joules_text

    if energy.value is None:
        return "—"
    gain = "" if energy.accuracy is None else f", gain ±{100 * energy.accuracy:.2g} %"
    return interval_text(energy.value, energy.low, energy.high, joules_text) + gain
