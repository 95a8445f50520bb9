"""``ipj-edge bench``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ipj_edge.cli.options.bench import SAID_BY_SUITE, bench_options, collect_bench
from ipj_edge.cli.options.probes import probe_options
from ipj_edge.cli.printing.bench import KINDS, check_outputs, finish
from ipj_edge.cli.running.bench_suite import run_file
from ipj_edge.cli.running.interrupts import exit_code

if TYPE_CHECKING:
    from ipj_edge.benchmark import BenchOptions, Entry
    from ipj_edge.protocols import Array


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
    from ipj_edge.errors import ConfigError

    # A user's metrics and data live in the current folder, which an installed program does not search.
    sys.path.insert(0, str(Path.cwd()))
    outputs = {kind: options.pop(f"{kind}_path") for kind in KINDS}
    force, suite, bundles = options.pop("force"), options.pop("suite"), options.pop("bundles")
    if bool(bundles) == bool(suite):
        raise ConfigError("give either bundles or --suite FILE")
    if suite:
        _refuse_what_the_suite_says()
    check_outputs(outputs, force=force)
    chosen = collect_bench(options)
    return run_file(suite, chosen, outputs, force=force) if suite else _bench(bundles, chosen, outputs)


def _refuse_what_the_suite_says() -> None:
    """Refuse an option that the suite's file decides: it would be passed over without a word."""
    from ipj_edge.errors import ConfigError

    context = click.get_current_context()
    options = {param.name: param.opts[0] for param in context.command.params}
    given = [
        options[name]
        for name in SAID_BY_SUITE
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        raise ConfigError(f"{', '.join(given)}: with --suite, the suite's file says that")


def _bench(bundles: Sequence[str], options: BenchOptions, outputs: Mapping[str, str | None]) -> int:
    """Measure; what was measured before an error or an interrupt is written all the same."""
    from ipj_edge.benchmark.run.entries import make_entry
    from ipj_edge.benchmark.run.runner import cases, result_of
    from ipj_edge.cli.printing import console as _console
    from ipj_edge.errors import IpjEdgeError

    entries: list[Entry] = []
    samples: dict[int, Array] = {}
    total, failure = len(bundles) * len(options.scenarios), None
    code = 0
    try:
        for case in cases(bundles, options, on_window=_ticker()):
            samples[len(entries)] = case.measured.latencies.kept
            entries.append(make_entry(case.loaded, case.scenario, case.measured, options.tariff))
            _console.progress(f"{entries[-1].bundle} {case.scenario.name}: done")
    except KeyboardInterrupt as error:
        code = exit_code(error)
        _console.warn(f"interrupted: {len(entries)} of {total} measurements were done")
    except IpjEdgeError as error:
        if not entries:
            raise
        failure = error
        _console.warn(f"failed: {len(entries)} of {total} measurements were done")
    code = finish(result_of(tuple(entries), options), samples, outputs, code)
    if failure is not None:
        raise failure
    return code


def _ticker() -> Callable[[str, Any, int], None] | None:
    """Return a callback that shows windows as they end, on a terminal only."""
    if not sys.stderr.isatty():
        return None

    def tick(bundle: str, scenario: Any, windows: int) -> None:
        click.echo(f"\r\x1b[K· {bundle} {scenario.name}: window {windows}\r", nl=False, err=True)

    return tick
