"""What every stage of a bundle costs here: joules and seconds, each stage in its own energy windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import NamedTuple

import msgspec

from ipj_edge.adaptation import output_adapter
from ipj_edge.data import Samples
from ipj_edge.energy import Meter, minimum_window_s, per_inference
from ipj_edge.errors import ConfigError
from ipj_edge.exits import Gate, StageCost, StageCosts
from ipj_edge.manifest import Manifest
from ipj_edge.model import Model
from ipj_edge.plugins import load_target
from ipj_edge.protocols import Array, Feeds, Session
from ipj_edge.values import ProbeOptions

_CACHED = 32
_CHECK_EVERY = 8


class PricingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to price stages.

    Attributes:
        probe: Name of a power probe, or ``auto``.
        probe_options: Options of the probe.
        require_measured: Refuse modelled energy.
        windows: Windows a stage.
        window_s: Least seconds of a window.
        error: Wanted relative error; makes windows as long as the probe needs for it.
    """

    probe: str = "auto"
    probe_options: ProbeOptions = ProbeOptions()
    require_measured: bool = False
    windows: int = 5
    window_s: float = 0.2
    error: float = 0.05


class Prices(NamedTuple):
    """Costs of all stages in joules (or seconds where no energy is to be had), and in seconds."""

    costs: StageCosts
    times: StageCosts


class _Measured(NamedTuple):
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
    return StageCosts(unit="MAC", source="counted", stages=stages)


def price_stages(model: Model, whole: Model, samples: Samples, gate: Gate | None, options: PricingOptions) -> Prices:
    """Run every stage, and the unsplit program, in windows of its own at batch 1.

    Args:
        model: The bundle, loaded with its stages.
        whole: The same bundle, its unsplit program.
        samples: Real inputs.
        gate: A gate whose cost is part of every stage but the last; None for the stages alone.
        options: Probe and windows.
    """
    boundaries = load_target(model.manifest.target).boundaries
    meter = Meter(
        (options.probe,),
        options=options.probe_options,
        boundaries=boundaries,
        require_measured=options.require_measured,
    )
    with meter:
        facts = meter.facts[0]
        needed = 0.0 if facts is None else minimum_window_s(facts, options.error)
        window_s = max(options.window_s, needed)
        calls = [*_stage_calls(model, samples, gate), *_whole_calls(whole, samples)]
        found = [_priced(meter, each, options.windows, window_s) for each in calls]
        source = "" if facts is None else f"{facts.provenance} ({facts.name}, {facts.boundary})"
    times = _costs("s", "wall time", [each.seconds for each in found])
    joules = [each.joules for each in found]
    if any(value is None for value in joules):
        return Prices(times, times)
    return Prices(_costs("J", source, [float(value) for value in joules if value is not None]), times)


def _costs(unit: str, source: str, values: Sequence[float]) -> StageCosts:
    stages = tuple(StageCost(fixed=value, per_row=0.0) for value in values)
    return StageCosts(unit=unit, source=source, stages=stages[:-1], unsplit=stages[-1])  # type: ignore[arg-type]


def _stage_calls(model: Model, samples: Samples, gate: Gate | None) -> list[list[Callable[[], object]]]:
    """Return for every stage one call a cached sample: the stage, its exit in real values, and the gate."""
    calls: list[list[Callable[[], object]]] = [[] for _ in model.sessions]
    for feeds in _rows(model, samples):
        pool: dict[str, Array] = dict(feeds)
        outputs: list[Array] = []
        for index, session in enumerate(model.sessions):
            taken = {port.name: pool[port.name] for port in session.stage.takes}
            pool.update({name: value.copy() for name, value in session.run(taken).items()})
            adapt = output_adapter(next(p for p in session.stage.adds if p.name == session.stage.exit_output))
            outputs = [*outputs, adapt(pool[str(session.stage.exit_output)], True)]
            last = index == len(model.sessions) - 1
            calls[index].append(_stage_call(session, taken, None if last else gate, index, outputs))
    return calls


def _stage_call(
    session: Session, feeds: Feeds, gate: Gate | None, index: int, outputs: list[Array]
) -> Callable[[], object]:
    name = str(session.stage.exit_output)
    adapt = output_adapter(next(port for port in session.stage.adds if port.name == name))

    def call() -> object:
        answer = adapt(session.run(feeds)[name], True)
        return answer if gate is None else gate.row_leaves(index, outputs)

    return call


def _whole_calls(whole: Model, samples: Samples) -> list[list[Callable[[], object]]]:
    (session,) = whole.sessions
    return [[_stage_call(session, feeds, None, 0, []) for feeds in _rows(whole, samples)]]


def _rows(model: Model, samples: Samples) -> list[dict[str, Array]]:
    """Return engine tensors of single samples, spread over the data."""
    count = min(samples.count, _CACHED)
    places = [index * samples.count // count for index in range(count)]
    return [model.adapted(samples.rows(model.manifest.inputs, place, place + 1)) for place in places]


def _priced(meter: Meter, calls: Sequence[Callable[[], object]], windows: int, window_s: float) -> _Measured:
    for call in calls:
        call()
    readings, counts, seconds = [], [], 0.0
    for _ in range(windows):
        start = perf_counter()
        with meter.window("stage") as window:
            counts.append(_repeat(calls, start + window_s))
        seconds += perf_counter() - start
        readings.append(window.reading)
    energy = per_inference(readings, counts)
    return _Measured(energy.value, energy.reason, seconds / sum(counts))


def _repeat(calls: Sequence[Callable[[], object]], end: float) -> int:
    count = 0
    while perf_counter() < end:
        for _ in range(_CHECK_EVERY):
            calls[count % len(calls)]()
            count += 1
    return count
