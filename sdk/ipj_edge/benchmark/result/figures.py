"""The figures of an entry by name, as `compare` and `pareto` take them on the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from ipj_edge.benchmark.result.schema import Entry, WindowRecord
from ipj_edge.errors import ConfigError
from ipj_edge.units import ENERGIES, RATES, SIZES, TIMES, bytes_text, joules_text, quantity, seconds_text

FigureKind = Literal["cpu", "wall", "energy", "size", "quality"]


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of an entry.

    Attributes:
        name: Name on the command line.
        kind: What it rests on: only wall figures suffer from a busy machine, only energy has a provenance.
        value: Returns it, or None where the entry has none.
        in_window: Returns it for one window, or None; not set for a figure that windows do not have.
        higher_is_better: Direction.
        text: Writes it for people.
        units: Units that a limit of it may be written in; an empty one is a plain number.
    """

    name: str
    kind: FigureKind
    value: Callable[[Entry], float | None]
    in_window: Callable[[WindowRecord], float | None] | None = None
    higher_is_better: bool = False
    text: Callable[[float], str] = "{:.4g}".format
    units: tuple[str, ...] = ("",)


def read_limit(figure: Figure, text: str) -> float:
    """Read a limit of a figure, written in one of its own units: ``20ms`` of a latency is 0.02.

    Raises:
        ConfigError: no number, no unit, or the unit of something else.
    """
    value, unit = quantity(text)
    if unit not in figure.units:
        known = ", ".join(unit or "a plain number" for unit in figure.units)
        raise ConfigError(f"'{text}' is no limit of {figure.name}: its unit is one of {known}")
    return value


def windows_of(figure: Figure, entry: Entry) -> list[float] | None:
    """Return the figure of every window that has it, or None where windows do not have it."""
    if figure.in_window is None:
        return None
    values = (figure.in_window(window) for window in entry.windows)
    return [value for value in values if value is not None] or None


def figure_named(name: str, *entries: Entry) -> Figure:
    """Return a figure by name; the names of the entries' own metrics count.

    Raises:
        ConfigError: no such figure; lists them.
    """
    if name in FIGURES:
        return FIGURES[name]
    for score in (score for entry in entries for score in entry.quality if score.metric == name):
        return quality_figure(name, is_rate=score.is_rate, higher_is_better=score.higher_is_better)
    metrics = sorted({score.metric for entry in entries for score in entry.quality})
    raise ConfigError(f"unknown figure '{name}': expected one of {', '.join([*FIGURES, *metrics])}")


def quality_figure(name: str, *, is_rate: bool, higher_is_better: bool) -> Figure:
    """Return the figure that a metric's score is."""
    return Figure(
        name=name,
        kind="quality",
        value=lambda entry: _metric(entry, name),
        higher_is_better=higher_is_better,
        units=("%",) if is_rate else ("", "%"),
    )


def _metric(entry: Entry, name: str) -> float | None:
    return next((score.value for score in entry.quality if score.metric == name), None)


def _share_text(value: float) -> str:
    return f"{100 * value:.2f} %"


def _per_inference(window: WindowRecord, amount: float | None) -> float | None:
    return None if amount is None or not window.inferences else amount / window.inferences


def _all() -> tuple[Figure, ...]:
    return (
        Figure(
            name="joules_per_inference",
            kind="energy",
            value=lambda entry: entry.joules_per_inference.value,
            in_window=lambda window: _per_inference(window, window.joules),
            text=joules_text,
            units=ENERGIES,
        ),
        Figure(
            name="cpu_s_per_inference",
            kind="cpu",
            value=lambda entry: entry.cpu_s_per_inference,
            in_window=lambda window: _per_inference(window, window.cpu_s),
            text=seconds_text,
            units=TIMES,
        ),
        Figure(
            name="latency_s.p50",
            kind="wall",
            value=lambda entry: entry.latency_s.p50,
            in_window=lambda window: window.p50_s,
            text=seconds_text,
            units=TIMES,
        ),
        Figure(
            name="latency_s.p90", kind="wall", value=lambda entry: entry.latency_s.p90, text=seconds_text, units=TIMES
        ),
        Figure(
            name="latency_s.p99",
            kind="wall",
            value=lambda entry: entry.latency_s.p99,
            in_window=lambda window: window.p99_s,
            text=seconds_text,
            units=TIMES,
        ),
        Figure(
            name="latency_s.mean",
            kind="wall",
            value=lambda entry: entry.latency_s.mean,
            in_window=lambda window: None if window.busy_s is None else window.busy_s / window.queries,
            text=seconds_text,
            units=TIMES,
        ),
        Figure(
            name="throughput_hz",
            kind="wall",
            value=lambda entry: entry.throughput_hz,
            in_window=lambda window: window.inferences / window.seconds,
            higher_is_better=True,
            units=RATES,
        ),
        Figure(name="load_s", kind="wall", value=lambda entry: entry.load_s, text=seconds_text, units=TIMES),
        Figure(name="first_s", kind="wall", value=lambda entry: entry.first_s, text=seconds_text, units=TIMES),
        Figure(
            name="bytes",
            kind="size",
            value=lambda entry: entry.bytes,
            text=lambda value: bytes_text(int(value)),
            units=SIZES,
        ),
        Figure(
            name="accuracy",
            kind="quality",
            value=lambda entry: None if entry.accuracy is None else entry.accuracy.value,
            higher_is_better=True,
            text=_share_text,
            units=("%",),
        ),
        Figure(
            name="ipj",
            kind="energy",
            value=lambda entry: None if entry.ipj is None else entry.ipj.value,
            higher_is_better=True,
        ),
        Figure(
            name="joules_per_correct",
            kind="energy",
            value=lambda entry: None if entry.joules_per_correct is None else entry.joules_per_correct.value,
            text=joules_text,
            units=ENERGIES,
        ),
        Figure(
            name="energy_delay_js",
            kind="energy",
            value=lambda entry: None if entry.energy_delay_js is None else entry.energy_delay_js.value,
        ),
    )


FIGURES: dict[str, Figure] = {figure.name: figure for figure in _all()}
