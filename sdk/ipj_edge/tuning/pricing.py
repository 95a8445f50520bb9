"""What leaving at every exit of a bundle costs here: joules and seconds, each depth in energy windows of its own.

A whole inference is measured, from the caller's array to the answer, gates included: only then do the costs weighed
by the shares that leave add up to what an inference costs. A stage's cost is what going on to its exit adds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from time import perf_counter
from typing import NamedTuple

import msgspec
import numpy as np

from ipj_edge import limits
from ipj_edge.bundles.manifest import Manifest
from ipj_edge.energy import Meter, minimum_window_s, per_inference
from ipj_edge.errors import ConfigError, ProbeUnavailableError
from ipj_edge.exits import Gate, StageCost, StageCosts
from ipj_edge.exits.proof.costs import stage_costs
from ipj_edge.plugins import load_target
from ipj_edge.protocols import Array
from ipj_edge.runtime.model import Model
from ipj_edge.runtime.programs import Programs
from ipj_edge.samples.data import Samples
from ipj_edge.values import ProbeOptions, Reading

_CACHED = 32
_WARM_UP = 8  # calls; sessions settle where their tensors lie after a few
_MANY = 8  # rows of the second batch size, which tells what a row costs from what a call costs

Call = Callable[[], object]
RunInputs = Callable[[dict[str, Array] | Array], object]


class PricingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to price stages.

    Attributes:
        probe: Name of a power probe, or ``auto``.
        probe_options: Options of the probe.
        require_measured: Refuse modelled energy.
        windows: Windows an exit and batch size.
        window_s: Least seconds of a window.
        error: Wanted relative error; makes windows as long as the probe needs for it.
    """

    probe: str = "auto"
    probe_options: ProbeOptions = ProbeOptions()
    require_measured: bool = False
    windows: int = 5
    window_s: float = 0.2
    error: float = 0.05

    def __post_init__(self) -> None:
        """Refuse numbers that ask for a run without an end."""
        limits.WINDOWS.check("the number of windows", self.windows)
        limits.WINDOW_S.check("the length of a window", self.window_s)
        limits.SHARE.check("the wanted error", self.error)


class Prices(NamedTuple):
    """Costs of all stages in joules, or in seconds with the reason why there are no joules; and in seconds."""

    costs: StageCosts
    times: StageCosts
    reason: str = ""


class _Measured(NamedTuple):
    """Of one call: joules, None with a reason where there are none to be had, and seconds."""

    joules: float | None
    reason: str
    seconds: float


def mac_costs(manifest: Manifest) -> StageCosts:
    """Return the multiply-accumulates of every stage as its cost.

    Raises:
        ConfigError: a stage whose multiply-accumulates are not counted.
    """
    unknown = [stage.name for stage in manifest.stages if stage.macs is None]
    if unknown:
        raise ConfigError(f"multiply-accumulates of {', '.join(unknown)} are not counted: use --objective joules")
    stages = tuple(StageCost(fixed=0.0, per_row=float(stage.macs or 0)) for stage in manifest.stages)
    whole = None if manifest.unsplit is None else manifest.unsplit.macs
    unsplit = None if whole is None else StageCost(fixed=0.0, per_row=float(whole))
    return StageCosts(unit="MAC", source="counted", stages=stages, unsplit=unsplit)


def price_exits(
    model: Model, whole: Model, samples: Samples, gate: Gate | None, options: PricingOptions, *, batch: int = 1
) -> Prices:
    """Run inferences that leave at each exit, and the unsplit program, in windows of their own that take turns.

    Args:
        model: The bundle, loaded with its stages.
        whole: The same bundle, its unsplit program.
        samples: Real inputs.
        gate: A gate that is asked, and paid for, at every exit but the last; None for the stages alone.
        options: Probe and windows.
        batch: Batch size that the costs are wanted for.

    Raises:
        ProbeUnavailableError: a measured figure is required and not to be had.
    """
    rows = _second_size(model.manifest, samples, batch)
    runs = [*(_leaving(model, gate, index) for index in range(len(model.sessions))), whole.run]
    sizes = (1,) if rows == 1 else (1, rows)
    calls = [_calls(run, model.manifest, samples, size) for size in sizes for run in runs]
    meter = Meter(
        (options.probe,),
        options=options.probe_options,
        boundaries=load_target(model.manifest.target).boundaries,
        require_measured=options.require_measured,
    )
    with meter:
        facts = meter.facts[0]
        needed = 0.0 if facts is None else minimum_window_s(facts, options.error)
        # Single samples are bought at batch 1: their joules need no second size, and its windows can stay short.
        lengths = [max(options.window_s, needed), max(options.window_s, needed if batch > 1 else 0.0)]
        found = _take_turns(meter, calls, options.windows, np.repeat(lengths[: len(sizes)], len(runs)).tolist())
        source = "" if facts is None else f"{facts.provenance} ({facts.name}, {facts.boundary})"
    times = stage_costs("s", "wall time", [each.seconds for each in found], rows)
    bought = found if batch > 1 else found[: len(runs)]
    joules = [each.joules for each in bought if each.joules is not None]
    if len(joules) == len(bought):
        return Prices(stage_costs("J", source, joules, rows if batch > 1 else 1), times)
    reason = next(each.reason for each in bought if each.joules is None)
    if options.require_measured:
        raise ProbeUnavailableError(f"a measured figure is required, and there is none: {reason}")
    return Prices(times, times, reason)


def _second_size(manifest: Manifest, samples: Samples, batch: int) -> int:
    """Return the rows of the second batch size; 1 where the engine takes rows one by one anyway."""
    return 1 if manifest.batch.static is not None else min(max(batch, _MANY), manifest.batch.max, samples.count)


class _LeavesAt(Gate):
    """A gate that decides as its rule does, for the cost of it, and is then overruled: all leave at one exit."""

    __slots__ = ("_exit",)

    def __init__(self, gate: Gate, exit_index: int) -> None:
        for name in Gate.__slots__:
            setattr(self, name, getattr(gate, name))
        self._exit = exit_index

    def leaves(self, exit_index: int, outputs: Sequence[Array]) -> Array:
        super().leaves(exit_index, outputs)
        return np.full(len(outputs[-1]), exit_index == self._exit)

    def row_leaves(self, exit_index: int, outputs: Sequence[Array]) -> bool:
        super().row_leaves(exit_index, outputs)
        return exit_index == self._exit


def _leaving(model: Model, gate: Gate | None, exit_index: int) -> RunInputs:
    """Return `Model.run` over the loaded stages, where all samples leave at one exit."""
    stages = model.sessions
    forced = None if gate is None else _LeavesAt(gate, exit_index)
    leaving = Model(model.manifest, Programs(stages[-1], stages, forced), model.requested)
    return partial(leaving.run, max_exit=exit_index if gate is None else None)


def _calls(run: RunInputs, manifest: Manifest, samples: Samples, rows: int) -> list[Call]:
    """Return calls with real inputs, spread over the data; an only input is given bare, as callers do."""
    count = max(1, min(samples.count, _CACHED) // rows)
    starts = [index * (samples.count - rows) // count for index in range(count)]
    feeds = [samples.rows(manifest.inputs, start, start + rows) for start in starts]
    return [partial(run, feed if len(feed) > 1 else next(iter(feed.values()))) for feed in feeds]


def _take_turns(
    meter: Meter, calls: Sequence[Sequence[Call]], windows: int, lengths_s: Sequence[float]
) -> list[_Measured]:
    """Measure each list of calls in windows of its own; all take turns, so that the machine's moods fall on all."""
    readings: list[list[Reading]] = [[] for _ in calls]
    counts: list[list[int]] = [[] for _ in calls]
    seconds = [0.0 for _ in calls]
    for each in calls:
        for call in each[:_WARM_UP]:
            call()
    for _ in range(windows):
        for place, (each, length_s) in enumerate(zip(calls, lengths_s, strict=True)):
            start = perf_counter()
            with meter.window("exit") as window:
                counts[place].append(_repeat(each, length_s))
            seconds[place] += perf_counter() - start
            readings[place].append(window.reading)
    energies = [per_inference(reading, count) for reading, count in zip(readings, counts, strict=True)]
    return [
        _Measured(energy.value, energy.reason, spent / sum(count))
        for energy, count, spent in zip(energies, counts, seconds, strict=True)
    ]


def _repeat(calls: Sequence[Call], seconds: float) -> int:
    """Make the calls in turn until the time is over; return how many were made."""
    end = perf_counter() + seconds
    count = 0
    for call in cycle(calls):
        call()
        count += 1
        if perf_counter() >= end:
            break
    return count
