"""A quantized bundle exists to be faster or to need less: say so where it is not."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ipj_edge.benchmark.result.schema import Entry, energy_kind

_FLOAT = "fp32"
# Less than this is within what two runs of the same bundle differ by.
_MARGIN = 1.05


def flag_twins(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return the entries with a warning on each that is slower or hungrier than its fp32 twin.

    The twin is the same model on the same target in the same scenario under the same settings, at fp32.
    """
    twins = {_likeness(entry): entry for entry in entries if entry.precision == _FLOAT}
    return tuple(_flagged(entry, twins.get(_likeness(entry))) for entry in entries)


def _likeness(entry: Entry) -> tuple[object, ...]:
    stem = entry.bundle.removesuffix(f".{entry.precision}.ipj")
    settings = entry.requested.threads, entry.requested.spinning, entry.early_exit
    return stem, entry.target, entry.scenario, entry.samples_per_query, entry.every_s, settings


def _flagged(entry: Entry, twin: Entry | None) -> Entry:
    if twin is None or entry.precision == _FLOAT:
        return entry
    pairs = [("CPU time per inference", entry.cpu_s_per_inference, twin.cpu_s_per_inference)]
    if not entry.contention and not twin.contention:
        pairs.append(("latency p50", entry.latency_s.p50, twin.latency_s.p50))
    mine, its = entry.joules_per_inference.value, twin.joules_per_inference.value
    if mine is not None and its is not None and energy_kind(entry) == energy_kind(twin):
        pairs.append(("joules per inference", mine, its))
    worse = [f"{name} {value / other:.2f} times" for name, value, other in pairs if value > _MARGIN * other]
    if not worse:
        return entry
    warning = f"no gain over its fp32 twin {twin.bundle}: {', '.join(worse)}"
    return msgspec.structs.replace(entry, warnings=(*entry.warnings, warning))
