"""From raw figures to an entry of the result, with the warnings a reader has to see first."""

from __future__ import annotations

import itertools

import msgspec

from ipj_edge.benchmark.result.intelligence import energy_delay_product, intelligence_per_joule, joules_per_correct
from ipj_edge.benchmark.result.latencies import Latencies
from ipj_edge.benchmark.result.schema import EarlyExit, Entry, ExitRecord, Latency
from ipj_edge.benchmark.run.measured import Measured, energy_of
from ipj_edge.benchmark.run.quality import Quality
from ipj_edge.benchmark.run.queries import LEAST
from ipj_edge.benchmark.run.scenarios import Scenario
from ipj_edge.bundles.device_proof import missing_proof
from ipj_edge.bundles.manifest import Bundle, Manifest
from ipj_edge.energy import Tariff, cost_of, tops_per_watt
from ipj_edge.values import EffectiveSettings, Settings

_CONTENDED = 1.2
# A share of the busy time spent waiting for a CPU that moves a median.
_WAITED = 0.1


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a bundle once it is loaded and has answered the data.

    Attributes:
        load_s: Seconds to open, check and load it.
        first_s: Seconds of the first inference.
        early_exit: Whether it may leave early.
        notes: What a reader has to know of the bundle first.
        different: Different inputs it rotates through, counted no further than enough.
    """

    bundle: Bundle
    requested: Settings
    effective: tuple[EffectiveSettings, ...]
    load_s: float
    first_s: float
    quality: Quality
    data_sha256: str
    different: int
    early_exit: EarlyExit = "auto"
    notes: tuple[str, ...] = ()


def make_entry(loaded: Loaded, scenario: Scenario, measured: Measured, tariff: Tariff | None = None) -> Entry:
    """Return the entry of one bundle in one scenario."""
    manifest, quality = loaded.bundle.manifest, loaded.quality
    energy, latencies = energy_of(measured), measured.latencies
    inferences = int(measured.total("inferences"))
    ipj = intelligence_per_joule(quality.accuracy, energy)
    exits = quality.exits or _exits_of(measured, manifest)
    macs = _mean_macs(manifest, exits)
    delay_s = latencies.total_s / inferences
    contention = is_contended(measured, scenario.every_s)
    return Entry(
        bundle=loaded.bundle.path.name,
        digest=manifest.digest,
        data_sha256=loaded.data_sha256,
        target=manifest.target,
        precision=manifest.precision,
        scenario=scenario.name,
        samples_per_query=measured.samples_per_query,
        early_exit=loaded.early_exit,
        every_s=scenario.every_s,
        missed=int(measured.total("missed")),
        requested=loaded.requested,
        effective=loaded.effective,
        bytes=sum(record.size_bytes for record in manifest.files),
        accuracy=quality.accuracy,
        accuracy_reason=quality.reason,
        quality=quality.scores,
        load_s=loaded.load_s,
        first_s=loaded.first_s,
        warm_up_s=measured.warmth.seconds,
        latency_s=_latency(latencies),
        inferences=inferences,
        cpu_s_per_inference=measured.total("cpu_s") / inferences,
        throughput_hz=inferences / measured.total("seconds"),
        contention=contention,
        joules_per_inference=energy,
        ipj=ipj,
        joules_per_correct=joules_per_correct(ipj),
        energy_delay_js=energy_delay_product(energy, delay_s),
        tops_per_watt=tops_per_watt(None if macs is None else round(macs), energy),
        macs=macs,
        cost=None if tariff is None else cost_of(energy, tariff, 1000),
        exit_rates=tuple(record.share for record in exits) or (1.0,),
        exits=exits,
        reliability=quality.reliability,
        windows=measured.windows,
        stopped_by=measured.stopped_by,
        latency_histogram=latencies.histogram(),
        trace=measured.trace,
        verified_on=manifest.parity.verified_on,
        warnings=_warnings(loaded, scenario, measured, contention),
    )


def _exits_of(measured: Measured, manifest: Manifest) -> tuple[ExitRecord, ...]:
    """Return where the inputs of the run itself left, for data without labels."""
    total = sum(measured.exit_counts)
    if not total:
        return ()
    return tuple(
        ExitRecord(name=stage.name, share=count / total, macs=stage.macs)
        for stage, count in zip(manifest.stages, measured.exit_counts, strict=True)
    )


def _mean_macs(manifest: Manifest, exits: tuple[ExitRecord, ...]) -> float | None:
    """Return the multiply-accumulates of a mean inference: each exit costs all stages up to it."""
    counts = [stage.macs for stage in manifest.stages]
    known = [count for count in counts if count is not None]
    if len(known) < len(counts):
        return None
    depths = list(itertools.accumulate(known))
    return sum(record.share * depth for record, depth in zip(exits, depths, strict=True)) if exits else depths[-1]


def is_contended(measured: Measured, every_s: float | None) -> bool:
    """Say whether the process had to wait for a CPU so long that its wall times are not its own.

    The kernel's own count of waiting decides, where there is one; otherwise wall time a fifth above CPU time.
    """
    waited = [window.waited_s for window in measured.windows]
    if None not in waited:
        # Waking up for a slot of a pace is a wait too, outside the latency: there the gaps count.
        span_s = measured.total("busy_s" if every_s is None else "seconds")
        return sum(wait for wait in waited if wait is not None) > _WAITED * span_s
    return measured.total("busy_s") > _CONTENDED * measured.total("cpu_s")


def _warnings(loaded: Loaded, scenario: Scenario, measured: Measured, contention: bool) -> tuple[str, ...]:
    found = [*loaded.notes, *loaded.quality.warnings]
    if contention:
        found.append(
            "this machine is busy: the process waited for a CPU, wall times are not to be trusted, CPU time is"
        )
    if not measured.warmth.settled:
        found.append(f"latencies had not settled after a warm-up of {measured.warmth.seconds:.1f} s")
    if loaded.different < LEAST:
        found.append(
            f"only {loaded.different} different inputs: caches may know them by heart, give at least {LEAST} (--data)"
        )
    if measured.total("missed"):
        slots = int(measured.total("missed") + measured.total("queries"))
        found.append(f"{int(measured.total('missed'))} of {slots} slots of the pace were missed: too slow for it")
    unproven = missing_proof(loaded.bundle)
    if unproven:
        found.append(unproven)
    return (*found, *_drift(measured))


def _drift(measured: Measured) -> list[str]:
    clocks = [window.frequency_hz for window in measured.windows if window.frequency_hz is not None]
    if len(clocks) > 1 and min(clocks) < 0.9 * max(clocks):
        return [f"the CPU clock moved between {min(clocks) / 1e9:.2f} and {max(clocks) / 1e9:.2f} GHz over the windows"]
    return []


def _latency(latencies: Latencies) -> Latency:
    p50, p90, p99 = latencies.percentiles((50, 90, 99))
    return Latency(
        p50=p50, p90=p90, p99=p99, mean=latencies.total_s / latencies.count, least=latencies.least_s,
        most=latencies.most_s, kept=len(latencies.kept),
    )  # fmt: skip
