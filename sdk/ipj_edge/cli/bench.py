"""``ipj-edge bench``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ipj_edge.cli.bench_options import bench_options, collect_bench
from ipj_edge.cli.probe_options import probe_options

if TYPE_CHECKING:
    from ipj_edge.benchmark import BenchOptions, BenchResult, Entry
    from ipj_edge.protocols import Array
    from ipj_edge.values import EnergyPerInference

INTERRUPTED = 130


@click.command("bench")
@click.argument("bundles", nargs=-1, type=click.Path())
@bench_options
@click.option("--suite", metavar="FILE", help="Run the sweeps of a TOML file; resumes where it was killed.")
@probe_options
@click.option("--json", "json_path", metavar="FILE", help="Write JSON, raw samples beside it; - is stdout.")
@click.option("--csv", "csv_path", metavar="FILE", help="Write a row an entry; - is stdout.")
@click.option("--markdown", "markdown_path", metavar="FILE", help="Write a table for a pull request; - is stdout.")
@click.option("--report", "report_path", metavar="FILE", help="Write one self-contained HTML page.")
@click.option("--force", is_flag=True, help="Replace results that are there.")
def command(**options: Any) -> int:
    """Measure accuracy, latency, CPU time and joules per inference of bundles.

    \b
    ipj-edge bench dist/*.ipj --data val.npz --json result.json --report report.html
    ipj-edge bench --every 20ms dist/kws.tflite-cpu.int8.ipj
    ipj-edge bench --suite suite.toml --json result.json
    """
    from ipj_edge.benchmark.files import check_free, samples_path
    from ipj_edge.errors import ConfigError

    # A user's metrics and data live in the current folder, which an installed program does not search.
    sys.path.insert(0, str(Path.cwd()))
    outputs = {name: options.pop(f"{name}_path") for name in ("json", "csv", "markdown", "report")}
    if list(outputs.values()).count("-") > 1:
        raise ConfigError("only one output can go to stdout (-)")
    force, suite, bundles = options.pop("force"), options.pop("suite"), options.pop("bundles")
    if bool(bundles) == bool(suite):
        raise ConfigError("give either bundles or --suite FILE")
    json_path = outputs["json"]
    beside = [] if json_path in (None, "-") else [samples_path(Path(json_path))]
    check_free([*outputs.values(), *beside], force=force)
    if suite:
        raise ConfigError("--suite is not there yet")
    result, samples, interrupted = _bench(bundles, collect_bench(options))
    return finish(result, samples, outputs, interrupted)


def _bench(bundles: Sequence[str], options: BenchOptions) -> tuple[BenchResult, dict[int, Array], bool]:
    """Return the result so far, the raw samples of each entry and whether it was interrupted."""
    from ipj_edge.benchmark.entries import make_entry
    from ipj_edge.benchmark.runner import cases, result_of
    from ipj_edge.cli import _console

    entries: list[Entry] = []
    samples: dict[int, Array] = {}
    interrupted = False
    try:
        for case in cases(bundles, options, on_window=_ticker()):
            samples[len(entries)] = case.measured.latencies.kept
            entries.append(make_entry(case.loaded, case.scenario, case.measured, options.tariff))
            _console.progress(f"{entries[-1].bundle} {case.scenario.name}: done")
    except KeyboardInterrupt:
        interrupted = True
        total = len(bundles) * len(options.scenarios)
        _console.warn(f"interrupted: {len(entries)} of {total} measurements were done")
    return result_of(tuple(entries), options), samples, interrupted


def _ticker() -> Callable[[str, Any, int], None] | None:
    """Return a callback that shows windows as they end, on a terminal only."""
    if not sys.stderr.isatty():
        return None

    def tick(bundle: str, scenario: Any, windows: int) -> None:
        click.echo(f"\r\x1b[K· {bundle} {scenario.name}: window {windows}\r", nl=False, err=True)

    return tick


def finish(
    result: BenchResult, samples: dict[int, Array], outputs: dict[str, str | None], interrupted: bool = False
) -> int:
    """Write what was asked for, print the table and return the exit code."""
    from ipj_edge.errors import DataError

    if not result.results:
        if interrupted:
            return INTERRUPTED
        raise DataError("nothing was measured")
    _write(result, samples, outputs)
    if "-" not in outputs.values():
        print_entries(result.results)
    return INTERRUPTED if interrupted else 0


def _write(result: BenchResult, samples: dict[int, Array], outputs: dict[str, str | None]) -> None:
    import msgspec

    from ipj_edge.benchmark.files import encode, samples_path, write_samples
    from ipj_edge.benchmark.report import render
    from ipj_edge.benchmark.tables import to_csv, to_markdown

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
    from ipj_edge.benchmark.files import write_whole

    if path == "-":
        click.echo(make().decode(), nl=False)
    elif path is not None:
        write_whole(Path(path), make())


def print_entries(entries: Sequence[Entry]) -> None:
    """Print the table of a bench, warnings first."""
    from ipj_edge.benchmark.tables import mode_text
    from ipj_edge.cli import _console

    for entry in entries:
        for warning in entry.warnings:
            _console.warn(f"{entry.bundle} ({mode_text(entry)}): {warning}")
    columns = ("bundle", "scenario", "size", "accuracy", "p50", "p99", "CPU-s/inf", "inf/s", "J/inf", "energy is",
               "correct/J")  # fmt: skip
    right = ("size", "p50", "p99", "CPU-s/inf", "inf/s", "J/inf", "correct/J")
    _console.table(columns, [_row(entry) for entry in entries], right=right)
    for entry in entries:
        if entry.joules_per_inference.value is None:
            _console.say(f"{entry.bundle}: no joules: {entry.joules_per_inference.reason}")
        for score in entry.quality:
            if entry.accuracy is None or score.metric != entry.accuracy.metric:
                _console.say(f"{entry.bundle}: {_score(score)}")


def _row(entry: Entry) -> tuple[str, ...]:
    from ipj_edge.benchmark.tables import mode_text
    from ipj_edge.cli import _console

    accuracy, energy = entry.accuracy, entry.joules_per_inference
    return (
        entry.bundle,
        mode_text(entry),
        _console.bytes_text(entry.bytes),
        "—" if accuracy is None else f"{accuracy.value:.4f} ({accuracy.low:.4f} to {accuracy.high:.4f})",
        _console.seconds_text(entry.latency_s.p50),
        _console.seconds_text(entry.latency_s.p99),
        _console.seconds_text(entry.cpu_s_per_inference),
        f"{entry.throughput_hz:,.0f}" if entry.throughput_hz >= 100 else f"{entry.throughput_hz:.3g}",
        _joules(energy),
        f"{energy.provenance}, {energy.boundary} ({energy.probe})",
        "—" if entry.ipj is None else f"{entry.ipj.value:.4g}",
    )


def _score(score: Any) -> str:
    if score.value is None:
        return f"{score.metric} —: {score.reason}"
    ends = "" if score.low is None else f" ({score.low:.4g} to {score.high:.4g})"
    return f"{score.metric} {score.value:.4g}{ends}, n = {score.n}"


def _joules(energy: EnergyPerInference) -> str:
    from ipj_edge.cli import _console

    if energy.value is None:
        return "—"
    if energy.low is None or energy.high is None:
        return _console.joules_text(energy.value)
    spread = (energy.high - energy.low) / 2 / energy.value
    gain = "" if energy.accuracy is None else f", gain ±{energy.accuracy:.0%}"
    return f"{_console.joules_text(energy.value)} ±{spread:.1%}{gain}"
