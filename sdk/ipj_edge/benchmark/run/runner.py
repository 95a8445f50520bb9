"""Bench bundles: accuracy, latency, CPU time and joules per inference, all from one run of each bundle."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from time import perf_counter

import msgspec
import numpy as np

import ipj_edge
from ipj_edge import limits
from ipj_edge.benchmark.result.schema import RESULT_VERSION, BenchResult, EarlyExit, Entry
from ipj_edge.benchmark.result.trace import TraceStore
from ipj_edge.benchmark.run.entries import Loaded, make_entry
from ipj_edge.benchmark.run.environment import describe
from ipj_edge.benchmark.run.measured import Measured, energy_of
from ipj_edge.benchmark.run.measuring import Plan, measure, warm_up
from ipj_edge.benchmark.run.quality import Quality, assess
from ipj_edge.benchmark.run.queries import different_inputs, make_queries
from ipj_edge.benchmark.run.scenarios import Scenario, samples_per_query
from ipj_edge.benchmark.run.twins import flag_twins
from ipj_edge.bundles.bundle import open_bundle
from ipj_edge.bundles.manifest import Bundle
from ipj_edge.energy import Meter, Tariff, check_named, minimum_window_s
from ipj_edge.errors import ProbeUnavailableError
from ipj_edge.exits import read_exits
from ipj_edge.plugins import load_target
from ipj_edge.runtime.golden import read_golden
from ipj_edge.runtime.model import Model, open_model
from ipj_edge.samples.data import Samples, digest, fit, load_samples
from ipj_edge.values import ProbeOptions, Settings


class BenchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to bench.

    Attributes:
        data: Labelled data (`ipj_edge.samples.data.load_samples`); None runs on the golden inputs, without accuracy.
        settings: Settings to load the bundles with.
        early_exit: ``auto`` leaves early as a bundle's ``exits.json`` says; ``off`` never does.
        scenarios: Scenarios to run each bundle in.
        metrics: Names of metrics (`ipj_edge.metrics.NAMES`); empty means top-1 where there are class scores.
        probe: Name of a power probe, ``auto`` or ``none``.
        probe_options: Options of the probe.
        require_measured: Refuse modelled energy, and none at all.
        windows: Fewest independent windows; the interval comes from their spread.
        window_s: Least seconds of a window.
        error: Wanted relative error of the energy; makes windows as long as the probe needs for it, and ends the
            measurement once the interval is that narrow.
        max_s: Seconds of windows after which a measurement ends whatever its error; None is three times what the
            fewest windows take.
        tariff: What a kWh costs and emits, for cost and carbon.
    """

    data: str | None = None
    settings: Settings = Settings()
    early_exit: EarlyExit = "auto"
    scenarios: tuple[Scenario, ...] = (Scenario(),)
    metrics: tuple[str, ...] = ()
    probe: str = "auto"
    probe_options: ProbeOptions = ProbeOptions()
    require_measured: bool = False
    windows: int = 5
    window_s: float = 1.0
    error: float = 0.05
    max_s: float | None = None
    tariff: Tariff | None = None

    def __post_init__(self) -> None:
        """Refuse numbers that ask for a run without an end."""
        limits.WINDOWS.check("the number of windows", self.windows)
        limits.WINDOW_S.check("the length of a window", self.window_s)
        limits.SHARE.check("the wanted error", self.error)
        limits.DURATION_S.check("the duration", self.max_s)


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One bundle in one scenario, measured.

    Attributes:
        loaded: What is known of the bundle.
        scenario: The scenario.
        measured: Its raw figures.
    """

    loaded: Loaded
    scenario: Scenario
    measured: Measured


OnWindow = Callable[[str, Scenario, int], None]


def bench(bundles: Sequence[str | Path], options: BenchOptions | None = None) -> BenchResult:
    """Bench bundles one after the other, each in every scenario.

    Raises:
        IpjEdgeError: a bundle cannot be loaded, the data does not fit, or a reading that was required is not to be had.
    """
    chosen = options or BenchOptions()
    return result_of(tuple(bench_each(bundles, chosen)), chosen)


def bench_each(
    bundles: Sequence[str | Path], options: BenchOptions, on_window: OnWindow | None = None
) -> Iterator[Entry]:
    """Bench bundles and yield each entry when it is there; see `bench`."""
    for case in cases(bundles, options, on_window):
        yield make_entry(case.loaded, case.scenario, case.measured, options.tariff)


def cases(bundles: Sequence[str | Path], options: BenchOptions, on_window: OnWindow | None = None) -> Iterator[Case]:
    """Bench bundles and yield the raw figures of each in each scenario; see `bench`.

    Args:
        bundles: Folders of bundles.
        options: How to bench.
        on_window: Called between windows with the bundle's name, the scenario and the windows measured so far.
    """
    check_named(options.probe, options.probe_options)
    for path in bundles:
        yield from _bench_one(Path(path), options, on_window)


def result_of(entries: tuple[Entry, ...], options: BenchOptions, *, samples_file: str = "") -> BenchResult:
    """Put entries together with the machine they were measured on; flag those worse than their fp32 twin."""
    engines = {effective.engine: effective.engine_version for entry in entries for effective in entry.effective}
    return BenchResult(
        version=RESULT_VERSION,
        created_with={"ipj-edge": ipj_edge.__version__, "numpy": np.__version__, **engines},
        environment=describe(),
        data=options.data and Path(options.data).name,
        started=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        samples_file=samples_file,
        results=flag_twins(entries),
    )


def measure_case(path: Path, scenario: Scenario, options: BenchOptions, quality: Quality | None = None) -> Case:
    """Bench one bundle in one scenario; a quality that is known is not assessed again. See `bench`."""
    with _loaded(path, options, quality) as (loaded, model, samples):
        measured = _measure(loaded.bundle, model, samples, scenario, options, lambda windows: None)
    return Case(loaded=loaded, scenario=scenario, measured=measured)


def _bench_one(path: Path, options: BenchOptions, on_window: OnWindow | None) -> Iterator[Case]:
    with _loaded(path, options) as (loaded, model, samples):
        for scenario in options.scenarios:

            def note(windows: int, scenario: Scenario = scenario) -> None:
                if on_window is not None:
                    on_window(path.name, scenario, windows)

            measured = _measure(loaded.bundle, model, samples, scenario, options, note)
            yield Case(loaded=loaded, scenario=scenario, measured=measured)


@contextmanager
def _loaded(
    path: Path, options: BenchOptions, quality: Quality | None = None
) -> Iterator[tuple[Loaded, Model, Samples]]:
    """Open and load a bundle, run it for the first time and on all data."""
    start = perf_counter()
    bundle = open_bundle(path, leave_programs=True)
    with open_model(bundle, options.settings, exits=options.early_exit) as model:
        load_s = perf_counter() - start
        samples = _samples(bundle, options.data)
        query = make_queries(samples, bundle.manifest.inputs, bundle.manifest.batch.static or 1)[0]
        start = perf_counter()
        model.run(query)
        first_s = perf_counter() - start
        loaded = Loaded(
            bundle=bundle,
            requested=model.requested,
            effective=model.effective,
            load_s=load_s,
            first_s=first_s,
            quality=quality or assess(model, samples, options.metrics),
            data_sha256=digest(samples),
            different=different_inputs(samples),
            early_exit=options.early_exit,
            notes=_exit_notes(bundle, options.early_exit),
        )
        yield loaded, model, samples


def _measure(
    bundle: Bundle,
    model: Model,
    samples: Samples,
    scenario: Scenario,
    options: BenchOptions,
    on_window: Callable[[int], None],
) -> Measured:
    size = samples_per_query(scenario, bundle.manifest)
    queries = make_queries(samples, bundle.manifest.inputs, size)
    warmth = warm_up(model.run, queries)
    trace, before = TraceStore(), model.exit_counts
    meter = Meter(
        (options.probe,),
        options=options.probe_options,
        boundaries=load_target(bundle.manifest.target).boundaries,
        require_measured=options.require_measured,
        error=options.error,
        tap=trace.add,
    )
    with meter:
        origin_s = time.monotonic()
        plan = _plan(meter, scenario, options)
        measured = measure(model.run, queries, meter, plan, samples_per_query=size, warmth=warmth, on_window=on_window)
    if options.require_measured:
        _require_joules(bundle, measured)
    counts = tuple(after - earlier for after, earlier in zip(model.exit_counts, before, strict=True))
    return msgspec.structs.replace(measured, trace=trace.trace(origin_s), exit_counts=counts)


def _require_joules(bundle: Bundle, measured: Measured) -> None:
    """A probe that could be opened may still fail in every window, or be too slow for them."""
    energy = energy_of(measured)
    if energy.value is None:
        raise ProbeUnavailableError(
            f"{bundle.path.name}: a measured figure is required, and there is none: {energy.reason}"
        )


def _plan(meter: Meter, scenario: Scenario, options: BenchOptions) -> Plan:
    facts = meter.facts[0] if meter.facts else None
    needed = 0.0 if facts is None else minimum_window_s(facts, options.error)
    window_s = max(options.window_s, needed, scenario.every_s or 0.0)
    return Plan(
        windows=options.windows,
        window_s=window_s,
        max_s=3 * options.windows * window_s if options.max_s is None else options.max_s,
        error=options.error,
        every_s=scenario.every_s,
        idle=facts is not None and facts.provenance != "modelled",
    )


def _exit_notes(bundle: Bundle, early_exit: EarlyExit) -> tuple[str, ...]:
    """Say that thresholds are in use of which nothing is proven."""
    record = read_exits(bundle.path) if early_exit == "auto" and len(bundle.manifest.stages) > 1 else None
    if record is None or record.policy.never_exits or record.certificate.holds:
        return ()
    return (f"its early exits are not certified: {record.certificate.reason}",)


def _samples(bundle: Bundle, data: str | None) -> Samples:
    if data is not None:
        return load_samples(data, bundle.manifest.inputs, bundle.manifest.preprocessing, bundle.manifest.labels)
    inputs, _ = read_golden(bundle.path)
    return fit(inputs, None, bundle.manifest.inputs, "golden inputs")
