"""``ipj-edge bench``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ipj_edge.benchmark import Entry
    from ipj_edge.values import EnergyPerInference


@click.command("bench")
@click.argument("bundles", nargs=-1, required=True, type=click.Path())
@click.option("--data", help="Labelled data: .npz, folder of images, or module:callable. Default: the golden inputs.")
@click.option("--probe", default="auto", show_default=True, help="Power probe, auto or none.")
@click.option(
    "--error",
    default="5%",
    show_default=True,
    metavar="PERCENT",
    help="Wanted error of the energy; makes windows long enough for it.",
)
@click.option("--windows", default=5, show_default=True, type=click.IntRange(1), help="Independent windows.")
@click.option(
    "--window",
    "window_s",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0.01),
    help="Least seconds of a window.",
)
@click.option("--threads", type=click.IntRange(1), help="Inference threads. Default: min(affinity, cgroup quota).")
@click.option("--spinning", is_flag=True, help="Let idle engine threads spin.")
@click.option("--allow-fallback", is_flag=True, help="Accept settings that differ from the requested ones.")
@click.option("--require-measured", is_flag=True, help="Refuse modelled energy (exit code 8).")
@click.option("--sysfs-root", default="/sys", show_default=True, help="Where sysfs is mounted.")
@click.option("--port", help="Serial port of a meter.")
@click.option("--voltage", "voltage_v", type=float, help="Supply volts, for meters that stream current only.")
@click.option("--select", help="Chip, channel or rail to use where a probe has several.")
@click.option(
    "--json", "json_path", metavar="FILE", help="Write the result as JSON, raw samples beside it; - is stdout."
)
@click.option("--force", is_flag=True, help="Replace a result that is there.")
def command(**options: Any) -> int:
    """Measure accuracy, latency, CPU time and joules per inference of bundles (scenario single-stream)."""
    from ipj_edge.benchmark import bench_each, result_of
    from ipj_edge.cli import _console

    json_path, force = options.pop("json_path"), options.pop("force")
    _check_free(json_path, force)
    bundles = options.pop("bundles")
    chosen = _options(**options)
    entries: list[Entry] = []
    code = 0
    try:
        for entry in bench_each(bundles, chosen):
            _console.progress(f"{entry.bundle}: done")
            entries.append(entry)
    except KeyboardInterrupt:
        code = 130
    if json_path is not None and entries:
        _console.write_json(result_of(tuple(entries), chosen), json_path)
    if json_path != "-":
        print_entries(entries)
    if code:
        _console.warn(f"interrupted: {len(entries)} of {len(bundles)} bundles were measured")
    return code


def _check_free(json_path: str | None, force: bool) -> None:
    from ipj_edge.errors import DestinationError

    if json_path not in (None, "-") and Path(str(json_path)).exists() and not force:
        raise DestinationError(f"{json_path} exists: give --force to replace it, or another name")


def _options(**options: Any) -> Any:
    from ipj_edge.benchmark import BenchOptions
    from ipj_edge.cli import _parse
    from ipj_edge.values import ProbeOptions, Settings

    probe = {name: options.pop(name) for name in ("sysfs_root", "port", "voltage_v", "select")}
    settings = {name: options.pop(name) for name in ("threads", "spinning", "allow_fallback")}
    error = _parse.percent(options.pop("error"))
    return BenchOptions(settings=Settings(**settings), probe_options=ProbeOptions(**probe), error=error, **options)


def print_entries(entries: Sequence[Entry]) -> None:
    """Print the table of a bench, warnings first."""
    from ipj_edge.cli import _console

    for entry in entries:
        for warning in entry.warnings:
            _console.warn(f"{entry.bundle}: {warning}")
    columns = (
        "bundle",
        "target",
        "precision",
        "bytes",
        "accuracy",
        "p50",
        "p99",
        "CPU-s/inf",
        "J/inf",
        "energy is",
        "correct/J",
    )
    _console.table(columns, [_row(entry) for entry in entries], right=("bytes", "p50", "p99", "CPU-s/inf"))
    for entry in entries:
        if len(entry.exit_rates) > 1:
            _console.say(f"{entry.bundle}: exits answer {', '.join(f'{rate:.1%}' for rate in entry.exit_rates)}")
        if entry.joules_per_inference.value is None:
            _console.say(f"{entry.bundle}: no joules: {entry.joules_per_inference.reason}")


def _row(entry: Entry) -> tuple[str, ...]:
    from ipj_edge.cli import _console

    accuracy, energy = entry.accuracy, entry.joules_per_inference
    return (
        entry.bundle,
        entry.target,
        entry.precision,
        f"{entry.bytes:,}",
        "—" if accuracy is None else f"{accuracy.value:.4f} ({accuracy.low:.4f} to {accuracy.high:.4f})",
        _console.seconds_text(entry.latency_s.p50),
        _console.seconds_text(entry.latency_s.p99),
        _console.seconds_text(entry.cpu_s_per_inference),
        _joules(energy),
        f"{energy.provenance}, {energy.boundary} ({energy.probe})",
        "—" if entry.ipj is None else f"{entry.ipj.value:.4g}",
    )


def _joules(energy: EnergyPerInference) -> str:
    from ipj_edge.cli import _console

    if energy.value is None:
        return "—"
    if energy.low is None or energy.high is None:
        return _console.joules_text(energy.value)
    spread = (energy.high - energy.low) / 2 / energy.value
    gain = "" if energy.accuracy is None else f", gain ±{energy.accuracy:.0%}"
    return f"{_console.joules_text(energy.value)} ±{spread:.1%}{gain}"
