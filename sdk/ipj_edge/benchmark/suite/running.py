"""Run a suite: cells in turn (A B A B …), each finished one on disk at once, so that a kill loses one at most."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import msgspec

from ipj_edge.benchmark.run.measured import merged, steadiness
from ipj_edge.benchmark.run.runner import BenchOptions, Case, measure_case
from ipj_edge.benchmark.suite.file import Cell, Suite
from ipj_edge.benchmark.suite.state import SuiteState
from ipj_edge.energy import check_named
from ipj_edge.errors import DataError
from ipj_edge.limits import DURATION_S


class SuiteProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a suite stands.

    Attributes:
        cell: Name of the cell just measured.
        done: Measurements done, those found on disk included.
        total: Measurements planned so far; cells that are still noisy add some.
        left_s: Seconds left, from the mean of those measured now.
    """

    cell: str
    done: int
    total: int
    left_s: float


def run_suite(suite: Suite, state: SuiteState, on_progress: Callable[[SuiteProgress], None] | None = None) -> None:
    """Measure what is missing: every cell its rounds, noisy ones more until their error or time is reached.

    Raises:
        IpjEdgeError: a cell cannot be measured. What was finished before stays on disk.
    """
    asked = suite.cells[0].options
    check_named(asked.probe, asked.probe_options)
    start, measured = time.monotonic(), 0
    while jobs := _missing(suite, state):
        cell, number = jobs[0]
        earlier = state.load(cell, 0) if number else None
        quality = None if earlier is None else earlier.loaded.quality
        case = measure_case(cell.path, cell.scenario, _one_round(cell, suite.rounds), quality)
        if earlier and earlier.loaded.data_sha256 != case.loaded.data_sha256:
            raise DataError(f"{cell.name}: the data changed between two rounds; give --force to measure all anew")
        state.save(cell, number, case)
        measured += 1
        if on_progress is not None:
            left = len(_missing(suite, state))
            done = sum(state.rounds(one) for one in suite.cells)
            mean_s = (time.monotonic() - start) / measured
            on_progress(SuiteProgress(cell=cell.name, done=done, total=done + left, left_s=left * mean_s))


def finished(suite: Suite, state: SuiteState) -> Iterator[tuple[Cell, Case]]:
    """Yield every cell of which something is measured, its rounds joined."""
    for cell in suite.cells:
        rounds = [state.load(cell, number) for number in range(state.rounds(cell))]
        if rounds:
            whole = merged([case.measured for case in rounds])
            calm = steadiness(whole.windows) <= cell.options.error
            whole = msgspec.structs.replace(whole, stopped_by="confidence" if calm else "duration")
            yield cell, msgspec.structs.replace(rounds[0], measured=whole)


def _missing(suite: Suite, state: SuiteState) -> list[tuple[Cell, int]]:
    """Return what to measure, in order: the cells with the fewest rounds first."""
    counts = [(state.rounds(cell), cell) for cell in suite.cells]
    planned = [
        (number, place, cell) for place, (count, cell) in enumerate(counts) for number in range(count, suite.rounds)
    ]
    if not planned:
        planned = [
            (count, place, cell) for place, (count, cell) in enumerate(counts) if not _is_done(cell, state, count)
        ]
    return [(cell, number) for number, _, cell in sorted(planned, key=lambda job: job[:2])]


def _is_done(cell: Cell, state: SuiteState, count: int) -> bool:
    windows = [window for number in range(count) for window in state.load(cell, number).measured.windows]
    spent_s = sum(window.seconds for window in windows)
    longest_s = sum(window.seconds for window in windows[: cell.options.windows]) * 3
    return steadiness(windows) <= cell.options.error or spent_s >= (cell.options.max_s or longest_s)


def _one_round(cell: Cell, rounds: int) -> BenchOptions:
    """Return options that measure one round's share of the windows and stop."""
    windows = -(-cell.options.windows // rounds)
    return msgspec.structs.replace(cell.options, windows=windows, max_s=DURATION_S.low)  # no window is shorter
