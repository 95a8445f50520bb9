"""Bench bundles: accuracy, latency, CPU time and joules per inference, all from one run of each bundle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter

import msgspec
import numpy as np

import ipj_edge
from ipj_edge.benchmark.environment import describe
from ipj_edge.benchmark.intelligence import intelligence_per_joule, joules_per_correct
from ipj_edge.benchmark.results import RESULT_VERSION, Accuracy, BenchResult, Entry, Latency
from ipj_edge.benchmark.single_stream import Measured, single_stream, warm_up
from ipj_edge.bundle import open_bundle
from ipj_edge.data import Samples, digest, fit, load_samples
from ipj_edge.device_proof import missing_proof
from ipj_edge.energy import Meter, minimum_window_s, per_inference
from ipj_edge.golden import read_golden
from ipj_edge.manifest import Bundle
from ipj_edge.metrics import top1_correct
from ipj_edge.model import Model, open_model
from ipj_edge.plugins import load_target
from ipj_edge.protocols import Array
from ipj_edge.stats import wilson_interval
from ipj_edge.values import ProbeOptions, Settings

_ROTATED = 256
_CONTENDED = 1.2


class BenchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to bench.

    Attributes:
        data: Labelled data (see `ipj_edge.data.load_samples`); None runs on the golden inputs, without accuracy.
        settings: Settings to load the bundles with.
        probe: Name of a power probe, ``auto`` or ``none``.
        probe_options: Options of the probe.
        require_measured: Refuse modelled energy.
        windows: Independent windows; the interval comes from their spread.
        window_s: Least seconds of a window.
        error: Wanted relative error of the energy; makes windows as long as the probe needs for it.
    """

    data: str | None = None
    settings: Settings = Settings()
    probe: str = "auto"
    probe_options: ProbeOptions = ProbeOptions()
    require_measured: bool = False
    windows: int = 5
    window_s: float = 1.0
    error: float = 0.05


def bench(bundles: Sequence[str | Path], options: BenchOptions | None = None) -> BenchResult:
    """Bench bundles one after the other in the single-stream scenario.

    Raises:
        IpjEdgeError: a bundle cannot be loaded, the data does not fit, or a reading that was required is not to be had.
    """
    chosen = options or BenchOptions()
    return result_of(tuple(bench_each(bundles, chosen)), chosen)


def bench_each(bundles: Sequence[str | Path], options: BenchOptions) -> Iterator[Entry]:
    """Bench bundles and yield each entry when it is there; see `bench`."""
    for path in bundles:
        yield _bench_one(Path(path), options)


def result_of(entries: tuple[Entry, ...], options: BenchOptions) -> BenchResult:
    """Put entries together with the machine they were measured on."""
    engines = {effective.engine: effective.engine_version for entry in entries for effective in entry.effective}
    return BenchResult(
        version=RESULT_VERSION,
        created_with={"ipj-edge": ipj_edge.__version__, "numpy": np.__version__, **engines},
        environment=describe(),
        data=options.data and Path(options.data).name,
        results=entries,
    )


def _bench_one(path: Path, options: BenchOptions) -> Entry:
    start = perf_counter()
    bundle = open_bundle(path)
    with open_model(bundle, options.settings) as model:
        load_s = perf_counter() - start
        samples = _samples(bundle, options.data)
        feeds = _feeds(bundle, samples)
        start = perf_counter()
        model.run(feeds[0])
        first_s = perf_counter() - start
        accuracy, reason = _accuracy(model, samples)
        warm_up(model, feeds)
        measured = _measure(bundle, model, feeds, options)
        entry = _entry(bundle, model, measured, accuracy)
    unproven = missing_proof(bundle)
    warnings = (*entry.warnings, unproven) if unproven else entry.warnings
    return msgspec.structs.replace(
        entry, warnings=warnings, accuracy_reason=reason, load_s=load_s, first_s=first_s, data_sha256=digest(samples)
    )


def _measure(bundle: Bundle, model: Model, feeds: list[dict[str, Array]], options: BenchOptions) -> Measured:
    boundaries = load_target(bundle.manifest.target).boundaries
    meter = Meter(
        (options.probe,),
        options=options.probe_options,
        boundaries=boundaries,
        require_measured=options.require_measured,
    )
    with meter:
        facts = meter.facts[0] if meter.facts else None
        needed = 0.0 if facts is None else minimum_window_s(facts, options.error)
        measured_here = facts is not None and facts.provenance != "modelled"
        return single_stream(
            model,
            feeds,
            meter,
            windows=options.windows,
            window_s=max(options.window_s, needed),
            idle=measured_here,
        )


def _samples(bundle: Bundle, data: str | None) -> Samples:
    if data is not None:
        return load_samples(data, bundle.manifest.inputs, bundle.manifest.preprocessing)
    inputs, _ = read_golden(bundle.path)
    return fit(inputs, None, bundle.manifest.inputs, "golden inputs")


def _feeds(bundle: Bundle, samples: Samples) -> list[dict[str, Array]]:
    """Return single samples to rotate through, spread over the data."""
    step = bundle.manifest.batch.static or 1
    starts = np.linspace(0, samples.count - step, min(samples.count // step, _ROTATED)).round().astype(int)
    feeds = [samples.rows(bundle.manifest.inputs, start, start + step) for start in starts]
    return [{name: np.ascontiguousarray(value) for name, value in feed.items()} for feed in feeds]


def _accuracy(model: Model, samples: Samples) -> tuple[Accuracy | None, str]:
    scored = [spec.name for spec in model.outputs if spec.meaning in ("logits", "probabilities")]
    if samples.labels is None:
        return None, "no labels were given (--data with labels)"
    if not scored:
        return None, "no output of this bundle holds logits or probabilities"
    step = model.manifest.batch.max * max(1, 256 // model.manifest.batch.max)
    correct = 0
    for start in range(0, samples.count, step):
        scores = model.run(samples.rows(model.manifest.inputs, start, start + step), copy=False).outputs[scored[0]]
        correct += top1_correct(scores, samples.labels[start : start + step])
    interval = wilson_interval(correct, samples.count)
    return Accuracy(value=interval.value, low=interval.low, high=interval.high, n=samples.count), ""


def _exit_rates(model: Model) -> tuple[float, ...]:
    """Return the share of inferences that each exit answered; all of them at the only exit of a plain model."""
    counts = model.exit_counts or (1,)
    return tuple(count / sum(counts) for count in counts)


def _entry(bundle: Bundle, model: Model, measured: Measured, accuracy: Accuracy | None) -> Entry:
    energy = per_inference(measured.readings, measured.inferences, measured.idle)
    manifest, latencies = bundle.manifest, measured.latencies_s
    p50, p90, p99 = np.percentile(latencies, (50, 90, 99))
    contention = measured.wall_s > _CONTENDED * measured.cpu_s
    ipj = intelligence_per_joule(accuracy, energy)
    return Entry(
        bundle=bundle.path.name,
        digest=manifest.digest,
        target=manifest.target,
        precision=manifest.precision,
        scenario="single-stream",
        requested=model.requested,
        effective=model.effective,
        bytes=sum(record.size_bytes for record in manifest.files),
        accuracy=accuracy,
        latency_s=Latency(p50=float(p50), p90=float(p90), p99=float(p99), mean=float(latencies.mean())),
        inferences=len(latencies),
        cpu_s_per_inference=measured.cpu_s / len(latencies),
        throughput_hz=len(latencies) / measured.wall_s,
        contention=contention,
        joules_per_inference=energy,
        ipj=ipj,
        joules_per_correct=joules_per_correct(ipj),
        exit_rates=_exit_rates(model),
        warnings=("wall time exceeds CPU time: this machine is busy, latencies are not to be trusted",)
        if contention
        else (),
    )
