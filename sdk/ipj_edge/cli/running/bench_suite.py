"""``ipj-edge bench --suite``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipj_edge.benchmark import BenchOptions, Entry
    from ipj_edge.benchmark.suite.file import Suite
    from ipj_edge.benchmark.suite.running import SuiteProgress
    from ipj_edge.benchmark.suite.state import SuiteState
    from ipj_edge.protocols import Array


TARGET_MISSED = 5


def run_file(path: str, options: BenchOptions, outputs: Mapping[str, str | None], *, force: bool) -> int:
    """Run a suite, or go on with one that was stopped; return the exit code."""
    from ipj_edge.benchmark.suite.file import load_suite
    from ipj_edge.benchmark.suite.running import run_suite
    from ipj_edge.benchmark.suite.state import SuiteState
    from ipj_edge.cli.printing import console as _console
    from ipj_edge.cli.running.interrupts import exit_code
    from ipj_edge.errors import ConfigError

    json_path = outputs["json"]
    if json_path in (None, "-"):
        raise ConfigError("a suite needs --json FILE: its finished cells are kept beside it until all are done")
    suite = load_suite(Path(path), options)
    state = SuiteState(Path(f"{json_path}.cells"), suite)
    state.open(force=force)
    found = sum(state.rounds(cell) for cell in suite.cells)
    if found:
        _console.note(f"going on: {found} measurements of {len(suite.cells)} cells are there")
    try:
        run_suite(suite, state, _show)
    except KeyboardInterrupt as error:
        _console.warn("interrupted: run the same command again to go on; below is what there is")
        # An unfinished result must not take the place of the finished one.
        return _finish(suite, state, dict.fromkeys(outputs), exit_code(error))
    code = _finish(suite, state, outputs, 0)
    state.remove()
    return code


def _finish(suite: Suite, state: SuiteState, outputs: Mapping[str, str | None], ended: int) -> int:
    from ipj_edge.benchmark.compare.quality_targets import judged
    from ipj_edge.benchmark.run.entries import make_entry
    from ipj_edge.benchmark.run.runner import result_of
    from ipj_edge.benchmark.suite.running import finished
    from ipj_edge.cli.printing.bench import finish

    entries: list[Entry] = []
    samples: dict[int, Array] = {}
    for cell, case in finished(suite, state):
        samples[len(entries)] = case.measured.latencies.kept
        entry = make_entry(case.loaded, case.scenario, case.measured, cell.options.tariff)
        entries.append(judged(entry, cell.at_least))
    code = finish(result_of(tuple(entries), suite.cells[0].options), samples, outputs, ended)
    return code or (TARGET_MISSED if _say_targets(entries) else 0)


def _say_targets(entries: Sequence[Entry]) -> bool:
    """Print every quality target; return True when one is missed, or could not be judged: a gate that is not met."""
    from ipj_edge.benchmark.result.pairs import title
    from ipj_edge.cli.printing import console as _console

    for entry in entries:
        for target in entry.targets:
            verdict = {True: "met", False: "MISSED", None: f"not judged: {target.reason}"}[target.met]
            value = "" if target.value is None else f" {target.value:.4f}"
            _console.say(f"{title(entry)}: {target.figure}{value}, target {target.least:g}: {verdict}")
    return any(not target.met for entry in entries for target in entry.targets)


def _show(progress: SuiteProgress) -> None:
    from ipj_edge.cli.printing import console as _console

    left = progress.left_s
    text = f"{left:.0f} s" if left < 90 else f"{left / 60:.0f} min" if left < 5400 else f"{left / 3600:.1f} h"
    ending = f"about {text} left" if left else "done"
    _console.progress(f"[{progress.done}/{progress.total}] {progress.cell}: {ending}")
