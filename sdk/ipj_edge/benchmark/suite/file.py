"""A suite: sweeps of bundles over scenarios, threads, batch sizes and paces, described in TOML."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

import ipj_edge
from ipj_edge import limits
from ipj_edge.benchmark.result.figures import FIGURES, quality_figure, read_limit
from ipj_edge.benchmark.result.schema import EarlyExit
from ipj_edge.benchmark.run.runner import BenchOptions
from ipj_edge.benchmark.run.scenarios import Scenario, ScenarioName
from ipj_edge.bundles.manifest import MANIFEST_NAME
from ipj_edge.errors import ConfigError, reading
from ipj_edge.exits import EXITS_NAME
from ipj_edge.metrics import make_metric
from ipj_edge.toml_files import read_toml
from ipj_edge.units import hundredths, seconds
from ipj_edge.values import Precision


class Sweep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every combination of these is a cell.

    Attributes:
        bundles: Folders of bundles, or patterns, relative to the suite's file.
        precisions: Keep only bundles of these; empty keeps all.
        scenarios: Scenarios.
        threads: Thread counts; empty leaves the default.
        batch: Samples a query, for multi-stream and offline; empty leaves what they suggest.
        exits: ``auto`` and ``off``: whether bundles may leave early.
        every: Paces such as ``20ms``; empty is back to back.
        data: Labelled data, relative to the suite's file; empty takes the suite's.
        metrics: Names of metrics; empty takes the suite's.
        at_least: Quality targets by figure, e.g. ``{ "top-1" = "90%" }``; a target that is missed is exit code 5.
    """

    bundles: tuple[str, ...]
    precisions: tuple[Precision, ...] = ()
    scenarios: tuple[ScenarioName, ...] = ("single-stream",)
    threads: tuple[int, ...] = ()
    batch: tuple[int, ...] = ()
    exits: tuple[EarlyExit, ...] = ("auto",)
    every: tuple[str, ...] = ()
    data: str = ""
    metrics: tuple[str, ...] = ()
    at_least: dict[str, str] = {}


class SuiteFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a suite's TOML.

    Attributes:
        name: What the suite is called.
        data: Labelled data for all sweeps.
        metrics: Metrics for all sweeps.
        rounds: Turns the cells are measured in, A B A B …, so that drift of the machine hits all alike.
        windows: Fewest windows of a cell, over all rounds.
        window: Least length of a window, e.g. ``1s``.
        duration: Longest time of windows of a cell, e.g. ``60s``; empty is three times what the fewest take.
        error: Wanted error, e.g. ``2%``; cells that have not reached it get more rounds.
        sweep: The sweeps.
    """

    name: str = ""
    data: str = ""
    metrics: tuple[str, ...] = ()
    rounds: int = 2
    windows: int = 6
    window: str = "1s"
    duration: str = ""
    error: str = "5%"
    sweep: tuple[Sweep, ...]


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One bundle in one scenario under one set of settings.

    Attributes:
        name: What it is called.
        path: Folder of the bundle.
        options: How to bench it; one scenario.
        at_least: Quality targets by figure.
    """

    name: str
    path: Path
    options: BenchOptions
    at_least: dict[str, float] = {}

    @property
    def scenario(self) -> Scenario:
        """Its only scenario."""
        return self.options.scenarios[0]


class Suite(msgspec.Struct, frozen=True, kw_only=True):
    """A suite, spelled out.

    Attributes:
        cells: What to measure.
        rounds: Fewest turns each cell is measured in.
        fingerprint: Hash over version, cells, their bundles and their data: cells of another fingerprint do not mix.
    """

    cells: tuple[Cell, ...]
    rounds: int
    fingerprint: str


def load_suite(path: Path, options: BenchOptions) -> Suite:
    """Read a suite.

    Args:
        path: The TOML file.
        options: What the command line says of probe, settings and tariff; the file says the rest.

    Raises:
        ConfigError: unreadable, an unknown key or value, no bundle for a pattern, or the same cell twice.
    """
    with reading(f"the suite {path}", ConfigError):  # patterns and paths in it may be none
        return _read(path, options)


def _read(path: Path, options: BenchOptions) -> Suite:
    file = read_toml(path, "suite").to(SuiteFile)
    try:
        limits.ROUNDS.check("rounds", file.rounds)
        limits.WINDOWS.check("windows", file.windows)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    base = _base_options(file, path, options)
    cells = tuple(cell for sweep in file.sweep for cell in _cells(sweep, file, path, base))
    if not cells:
        raise ConfigError(f"{path}: the sweeps come to nothing: no bundle is left to measure")
    names = [cell.name for cell in cells]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"{path}: two sweeps hold the same cell: {twice}")
    return Suite(cells=cells, rounds=file.rounds, fingerprint=_fingerprint(cells))


def _base_options(file: SuiteFile, path: Path, options: BenchOptions) -> BenchOptions:
    error = hundredths(file.error, "%")
    if error is None or not 0 < error < 1:
        raise ConfigError(f"{path}: error is a percentage with its unit, e.g. '2%', got '{file.error}'")
    return msgspec.structs.replace(
        options,
        windows=file.windows,
        window_s=seconds(file.window),
        error=error,
        max_s=seconds(file.duration) if file.duration else None,
    )


def _cells(sweep: Sweep, file: SuiteFile, path: Path, base: BenchOptions) -> Iterator[Cell]:
    data = _data(sweep.data or file.data, path)
    threads = sweep.threads or (base.settings.threads,)
    at_least = _targets(sweep, sweep.metrics or file.metrics, path)
    for bundle in _bundles(sweep, path):
        for scenario, count, early_exit in itertools.product(_scenarios(sweep), threads, sweep.exits):
            options = msgspec.structs.replace(
                base,
                data=data,
                metrics=sweep.metrics or file.metrics,
                settings=msgspec.structs.replace(base.settings, threads=count),
                early_exit=early_exit,
                scenarios=(scenario,),
            )
            yield Cell(name=_name(bundle, options), path=bundle, options=options, at_least=at_least)


def _targets(sweep: Sweep, metrics: Sequence[str], path: Path) -> dict[str, float]:
    """Return the quality targets by the names that the result has for them.

    Raises:
        ConfigError: a figure that the sweep does not measure, of which less is better, or a limit without its unit.
    """
    measured = [make_metric(name) for name in metrics or ("top-1",)]
    known = FIGURES | {
        metric.name: quality_figure(metric.name, is_rate=metric.is_rate, higher_is_better=metric.higher_is_better)
        for metric in measured
    }
    targets = {}
    for name, least in sweep.at_least.items():
        figure = known.get(name) or known.get(make_metric(name).name)
        if figure is None:
            raise ConfigError(f"{path}: at_least has '{name}', which is not among the metrics of its sweep")
        if not figure.higher_is_better:
            raise ConfigError(f"{path}: at_least has '{name}', of which less is better; `pareto --max` limits it")
        targets[figure.name] = read_limit(figure, least)
    return targets


def _scenarios(sweep: Sweep) -> list[Scenario]:
    found = []
    for name in sweep.scenarios:
        sizes: Sequence[int | None] = sweep.batch if sweep.batch and name != "single-stream" else (None,)
        paces: Sequence[str | None] = sweep.every if sweep.every and name != "offline" else (None,)
        found += [
            Scenario(name=name, samples_per_query=size, every_s=None if pace is None else seconds(pace))
            for size, pace in itertools.product(sizes, paces)
        ]
    return found


def _bundles(sweep: Sweep, path: Path) -> list[Path]:
    found: list[Path] = []
    for pattern in sweep.bundles:
        whole = Path(pattern)
        root = Path(whole.anchor) if whole.is_absolute() else path.parent
        relative = str(whole.relative_to(whole.anchor)) if whole.is_absolute() else pattern
        matches = sorted(match for match in root.glob(relative) if (match / MANIFEST_NAME).is_file())
        if not matches:
            raise ConfigError(f"{path}: no bundle matches '{pattern}' in {root}")
        found += [match for match in matches if match not in found]
    if not sweep.precisions:
        return found
    return [bundle for bundle in found if bundle.name.removesuffix(".ipj").endswith(sweep.precisions)]


def _data(location: str, path: Path) -> str | None:
    if not location:
        return None
    beside = path.parent / location
    return str(beside) if beside.exists() else location


def _name(bundle: Path, options: BenchOptions) -> str:
    scenario, threads = options.scenarios[0], options.settings.threads
    parts = [bundle.name, scenario.name]
    parts += [f"of {scenario.samples_per_query}"] if scenario.samples_per_query else []
    parts += [f"every {scenario.every_s:g} s"] if scenario.every_s else []
    parts += [f"threads {threads}"] if threads else []
    parts += ["exits off"] if options.early_exit == "off" else []
    return " ".join(parts)


def _fingerprint(cells: Sequence[Cell]) -> str:
    state = hashlib.sha256(ipj_edge.__version__.encode())
    for cell in cells:
        # Tariff and probe options are data as well: a cell measured with others is another cell.
        state.update(cell.name.encode() + msgspec.json.encode(cell.options, order="deterministic"))
        state.update((cell.path / MANIFEST_NAME).read_bytes())
        exits = cell.path / EXITS_NAME  # the one file that changes without the manifest
        state.update(exits.read_bytes() if exits.is_file() else b"")
        data = Path(cell.options.data or "")
        if data.is_file():
            state.update(f"{data.stat().st_size} {data.stat().st_mtime_ns}".encode())
    return state.hexdigest()
