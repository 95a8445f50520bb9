"""The result of a bench, as it is written to JSON. Its schema is ``docs/result.schema.json``."""

from __future__ import annotations

import msgspec

from ipj_edge.values import EffectiveSettings, EnergyPerInference, Interval, Precision, Settings

RESULT_VERSION = 1


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """Top-1 accuracy with its Wilson 95 % interval over n samples."""

    value: float
    low: float
    high: float
    n: int


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Latency of one inference in seconds, from call to answer."""

    p50: float
    p90: float
    p99: float
    mean: float


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One bundle in one scenario under one set of settings.

    Attributes:
        bundle: File name of the bundle.
        digest: Digest of its manifest, which holds the hashes of its files.
        data_sha256: Hash of the inputs it ran on (see `ipj_edge.data.digest`).
        bytes: Size of all its files.
        accuracy: On the given data; None with a reason.
        load_s: Seconds to open, check and load the bundle.
        first_s: Seconds of the first inference.
        inferences: Inferences behind the latencies and the energy.
        cpu_s_per_inference: CPU seconds (user + system, all threads) of one inference.
        throughput_hz: Inferences a second of wall time.
        contention: True when wall time exceeds CPU time by more than a fifth on one thread.
        ipj: Correct answers per joule; None where there is no such rate.
        exit_rates: Share of inputs that left at each stage.
    """

    bundle: str
    digest: str
    data_sha256: str = ""
    target: str
    precision: Precision
    scenario: str
    requested: Settings
    effective: tuple[EffectiveSettings, ...]
    bytes: int
    accuracy: Accuracy | None
    accuracy_reason: str = ""
    load_s: float = 0.0
    first_s: float = 0.0
    latency_s: Latency
    inferences: int
    cpu_s_per_inference: float
    throughput_hz: float
    contention: bool
    joules_per_inference: EnergyPerInference
    ipj: Interval | None
    joules_per_correct: Interval | None
    exit_rates: tuple[float, ...]
    warnings: tuple[str, ...] = ()


class BenchResult(msgspec.Struct, frozen=True, kw_only=True):
    """A whole bench: the machine, the name of the data, and one entry per bundle, scenario and settings."""

    version: int
    created_with: dict[str, str]
    environment: dict[str, str]
    data: str | None
    results: tuple[Entry, ...]
