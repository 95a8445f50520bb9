"""The options of ``ipj-edge bench``, and how they become one value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ipj_edge import limits
from ipj_edge.cli.options.types import Number, Time

if TYPE_CHECKING:
    from ipj_edge.benchmark import BenchOptions, Scenario

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--data", help="Labelled data: .npz, folder of images, or module:callable. [golden inputs]"),
    click.option(
        "--metric",
        "metrics",
        multiple=True,
        metavar="NAME",
        help="top-1, top-K, f1, f1-binary, auc, reconstruction-auc, mse, perplexity, pixel-accuracy, mean-iou or "
        "module:function; repeatable.",
    ),
    click.option(
        "--scenario",
        "scenarios",
        multiple=True,
        type=click.Choice(["single-stream", "multi-stream", "offline"]),
        help="How queries are issued; repeatable. [single-stream]",
    ),
    click.option(
        "--batch",
        type=Number(limits.BATCH),
        help="Samples of a query in multi-stream and offline. [8; what the bundle takes at once]",
    ),
    click.option(
        "--every",
        metavar="TIME",
        type=Time(limits.PACE_S),
        help="Start a query at this pace, e.g. 20ms; the gaps count. [back to back]",
    ),
    click.option("--probe", default="auto", show_default=True, help="Power probe, auto or none."),
    click.option(
        "--error",
        default="5%",
        show_default=True,
        metavar="PERCENT",
        help="Wanted error of the energy: makes windows long enough, and measures until it is reached.",
    ),
    click.option("--windows", default=5, show_default=True, type=Number(limits.WINDOWS), help="Fewest windows."),
    click.option(
        "--window",
        "window_s",
        default="1s",
        show_default=True,
        metavar="TIME",
        type=Time(limits.WINDOW_S),
        help="Least length of one.",
    ),
    click.option(
        "--duration",
        metavar="TIME",
        type=Time(limits.DURATION_S),
        help="Stop after so much time of windows. [three times what the fewest take]",
    ),
    click.option("--threads", type=Number(limits.THREADS), help="Inference threads. [min(affinity, cgroup quota)]"),
    click.option("--spinning", is_flag=True, help="Let idle engine threads spin."),
    click.option(
        "--exits",
        "early_exit",
        type=click.Choice(["auto", "off"]),
        default="auto",
        show_default=True,
        help="Leave early as the bundle's exits.json says, or never.",
    ),
    click.option("--allow-fallback", is_flag=True, help="Accept settings that differ from the requested ones."),
    click.option(
        "--allow-out-of-range", is_flag=True, help="Accept whole numbers outside the range an input declares."
    ),
    click.option("--require-measured", is_flag=True, help="Refuse modelled energy (exit code 8)."),
    click.option("--tariff", metavar="FILE", help="TOML with pue, intensity_g_per_kwh, price_per_kwh, currency."),
)


# Names of the parameters that a suite's file says instead.
SAID_BY_SUITE = (
    *("data", "metrics", "scenarios", "batch", "every", "error"),
    *("windows", "window_s", "duration", "early_exit"),
)


def bench_options(command: Command) -> Command:
    """Add the options to a command; `collect_bench` makes them one value."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def collect_bench(given: dict[str, Any]) -> BenchOptions:
    """Take the options out of a command's arguments, those of the probes included.

    Raises:
        ConfigError: one of them cannot be used.
    """
    from ipj_edge.benchmark import BenchOptions
    from ipj_edge.cli.options import parse as _parse
    from ipj_edge.cli.options.probes import collect
    from ipj_edge.energy import load_tariff
    from ipj_edge.values import Settings

    probe = collect(given, (given["probe"],))
    said = ("threads", "spinning", "allow_fallback", "allow_out_of_range")
    settings = Settings(**{name: given.pop(name) for name in said})
    scenarios = _scenarios(given.pop("scenarios"), given.pop("batch"), given.pop("every"))
    tariff, duration = given.pop("tariff"), given.pop("duration")
    return BenchOptions(
        settings=settings,
        scenarios=scenarios,
        probe_options=probe,
        error=_parse.percent(given.pop("error")),
        max_s=duration,
        tariff=None if tariff is None else load_tariff(Path(tariff)),
        **given,
    )


def _scenarios(names: tuple[str, ...], batch: int | None, every_s: float | None) -> tuple[Scenario, ...]:
    from ipj_edge.benchmark import Scenario
    from ipj_edge.errors import ConfigError

    # With a pace alone, the paced run is meant; with --batch alone, queries of that size.
    chosen = names or (("multi-stream",) if batch is not None and batch > 1 else ("single-stream",))
    if batch is not None and set(chosen) == {"single-stream"} and batch > 1:
        raise ConfigError("single-stream has one sample a query: name multi-stream or offline for --batch")
    return tuple(
        Scenario(
            name=name,  # type: ignore[arg-type]
            samples_per_query=None if name == "single-stream" else batch,
            every_s=None if name == "offline" else every_s,
        )
        for name in dict.fromkeys(chosen)
    )
