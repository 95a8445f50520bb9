"""The result of a bench, as it is written to JSON. Its schema is ``docs/result.schema.json``.

Version 2 adds fields to version 1, each with a default, and allows null for what is not known: a result of version 1 is
read as it is.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ipj_edge.benchmark.result.latencies import Histogram
from ipj_edge.benchmark.result.trace import PowerTrace
from ipj_edge.energy import Amount, Cost
from ipj_edge.metrics import Score
from ipj_edge.values import Boundary, EffectiveSettings, EnergyPerInference, Precision, Provenance, Settings

RESULT_VERSION = 2

EarlyExit = Literal["auto", "off"]


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """Rate of correct answers with its Wilson 95 % interval over n samples; top-1 unless ``metric`` says otherwise."""

    value: float
    low: float
    high: float
    n: int
    metric: str = "top-1"


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Latency of one query in seconds, from call to answer.

    Attributes:
        least: Smallest; None in results of version 1.
        most: Largest, likewise.
        kept: Samples behind the percentiles; fewer than there were queries when the run was long.
    """

    p50: float
    p90: float
    p99: float
    mean: float
    least: float | None = None
    most: float | None = None
    kept: int | None = None


class WindowRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One window: the independent unit behind the intervals.

    Attributes:
        start_s: Its beginning, in seconds from that of the measurement, idle time before included.
        seconds: Its length.
        inferences: Samples answered in it.
        queries: Queries answered in it.
        missed: Slots of a pace that were missed.
        joules: Its energy; None with a reason.
        cpu_s: CPU seconds of the process.
        waited_s: Seconds the process's threads waited for a CPU; None where the system does not tell.
        busy_s: Sum of the latencies; None where it was not written down.
        p50_s: Median latency of a query.
        p99_s: 99th percentile of it.
        frequency_hz: CPU clock at its end; None where the system does not show it.
        temperature_celsius: Temperature of the processor at its end; likewise.
    """

    start_s: float
    seconds: float
    inferences: int
    queries: int
    missed: int = 0
    joules: float | None
    reason: str = ""
    cpu_s: float
    waited_s: float | None = None
    busy_s: float | None = None
    p50_s: float
    p99_s: float
    frequency_hz: float | None = None
    temperature_celsius: float | None = None


class ExitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One exit of a staged bundle.

    Attributes:
        name: Name of the stage.
        share: Share of inputs that left here.
        accuracy: Accuracy of those that left here; None without labels, or when none left.
        macs: Multiply-accumulates of this stage for one sample; None when not known.
    """

    name: str
    share: float
    accuracy: Accuracy | None = None
    macs: int | None = None


class QualityTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A quality target: the least value of a figure that an entry should reach.

    Attributes:
        figure: Name of the figure.
        least: Its target.
        value: What was reached; None when there is nothing to judge by.
        met: Whether it was reached; None when it could not be judged, with the reason.
    """

    figure: str
    least: float
    value: float | None = None
    met: bool | None = None
    reason: str = ""


class ReliabilityBin(msgspec.Struct, frozen=True, kw_only=True):
    """Samples whose largest class probability lies in one tenth of 0..1.

    Attributes:
        n: How many.
        confidence: Mean of that probability.
        accuracy: Share of them that is right.
    """

    n: int
    confidence: float
    accuracy: float


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One bundle in one scenario under one set of settings.

    Attributes:
        bundle: File name of the bundle.
        digest: Digest of its manifest, which holds the hashes of its files.
        data_sha256: Hash of the inputs it ran on (see `ipj_edge.samples.data.digest`).
        bytes: Size of all its files.
        samples_per_query: Samples of a query; an inference is one sample.
        early_exit: Whether it might leave early: ``auto`` as its ``exits.json`` says, or ``off``.
        every_s: Pace of the queries in seconds; None for back to back. CPU time and joules include the gaps.
        missed: Slots of the pace that were missed.
        accuracy: On the given data; None with a reason.
        quality: Scores of all metrics that were asked for.
        targets: Quality targets of the suite it is from.
        load_s: Seconds to open, check and load the bundle.
        first_s: Seconds of the first inference.
        warm_up_s: Seconds of the warm-up.
        inferences: Inferences behind the latencies and the energy.
        cpu_s_per_inference: CPU seconds (user + system, all threads) of one inference.
        throughput_hz: Inferences a second of wall time.
        contention: True when the process waited for a CPU too long for its wall times to be trusted.
        joules_per_inference: Gross, and net of idle.
        ipj: Correct answers per joule; None where there is no such rate.
        joules_per_correct: Its inverse.
        energy_delay_js: Energy-delay product of one inference in joule-seconds; None without joules.
        tops_per_watt: Tera-operations per joule really reached; None where MACs or joules are not known.
        macs: Multiply-accumulates of one inference, the mean where inputs leave early; None when not known.
        cost: What 1,000 inferences cost under the user's tariff; None without one.
        exit_rates: Share of inputs that left at each stage.
        exits: The same with accuracy, for staged bundles.
        reliability: Confidence against accuracy, for labelled class scores; bins without samples are left out.
        windows: The windows behind the intervals.
        stopped_by: ``confidence`` or ``duration``.
        latency_histogram: Distribution of the latencies.
        trace: Power over time; None for probes that count energy.
        verified_on: Where the bundle was proven: ``target``, or ``proxy:ENGINE``.
        warnings: What a reader has to know first.
    """

    bundle: str
    digest: str
    data_sha256: str = ""
    target: str
    precision: Precision
    scenario: str
    samples_per_query: int = 1
    early_exit: EarlyExit = "auto"
    every_s: float | None = None
    missed: int = 0
    requested: Settings
    effective: tuple[EffectiveSettings, ...]
    bytes: int
    accuracy: Accuracy | None
    accuracy_reason: str = ""
    quality: tuple[Score, ...] = ()
    targets: tuple[QualityTarget, ...] = ()
    load_s: float = 0.0
    first_s: float = 0.0
    warm_up_s: float | None = None
    latency_s: Latency
    inferences: int
    cpu_s_per_inference: float
    throughput_hz: float
    contention: bool
    joules_per_inference: EnergyPerInference
    ipj: Amount | None
    joules_per_correct: Amount | None
    energy_delay_js: Amount | None = None
    tops_per_watt: float | None = None
    macs: float | None = None
    cost: Cost | None = None
    exit_rates: tuple[float, ...]
    exits: tuple[ExitRecord, ...] = ()
    reliability: tuple[ReliabilityBin, ...] = ()
    windows: tuple[WindowRecord, ...] = ()
    stopped_by: str = ""
    latency_histogram: Histogram | None = None
    trace: PowerTrace | None = None
    verified_on: str = ""
    warnings: tuple[str, ...] = ()


class BenchResult(msgspec.Struct, frozen=True, kw_only=True):
    """A whole bench: the machine, the name of the data, and one entry per bundle, scenario and settings.

    Attributes:
        version: Version of this schema.
        created_with: Versions of ipj-edge, numpy and the engines.
        environment: The machine.
        data: Name of the data; None for golden inputs.
        started: When the bench began, UTC, ISO 8601; empty in results of version 1.
        samples_file: Name of the file beside this one that holds the raw samples; empty without one.
        results: The entries.
    """

    version: int
    created_with: dict[str, str]
    environment: dict[str, str]
    data: str | None
    started: str = ""
    samples_file: str = ""
    results: tuple[Entry, ...]


def energy_kind(entry: Entry) -> tuple[Provenance | None, Boundary | None]:
    """Return what its joules are: figures of two kinds are never ranked together. None where nothing is known."""
    return entry.joules_per_inference.provenance, entry.joules_per_inference.boundary
