"""``ipj-edge measure``: joules, watts and seconds of any command, or of windows that lines on stdin mark."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ipj_edge.cli.options.probes import collect, probe_options
from ipj_edge.cli.running.interrupts import exit_code

if TYPE_CHECKING:
    from ipj_edge.energy import Meter
    from ipj_edge.values import Reading

UNAVAILABLE = 8
INTERRUPTED = (130, 143)


@click.command("measure")
@click.option("--probe", "probes", multiple=True, metavar="NAME", help="Probe, auto or none; repeatable. [auto]")
@click.option("--json", "json_path", metavar="FILE", help="Write the figures to a file; - is stdout.")
@click.option("--name", default="", metavar="TEXT", help="What the measurement is called.")
@click.option(
    "--error",
    default="5%",
    show_default=True,
    metavar="PERCENT",
    help="Refuse windows that are too short for this.",
)
@click.option("--require-measured", is_flag=True, help="Exit with 8 when there is no measured figure.")
@click.option("--trigger", type=click.Choice(["stdin"]), help="Let lines on stdin mark the windows.")
@probe_options
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def command(
    probes: tuple[str, ...],
    json_path: str | None,
    name: str,
    error: str,
    require_measured: bool,
    trigger: str | None,
    command: tuple[str, ...],
    **given: Any,
) -> None:
    """Measure the energy of COMMAND; its exit code is passed through.

    \b
    ipj-edge measure -- python my_app.py
    ipj-edge measure --probe rapl --json m.json -- ./app --its-own --options

    With --trigger stdin there is no COMMAND: lines 'start [NAME]' and 'stop [INFERENCES]' mark the windows, so
    that a script on the device, another host, can say when its work begins and ends, e.g. through ssh. The time a
    line needs to arrive is part of the window.
    """
    from ipj_edge.cli.options import parse as _parse
    from ipj_edge.cli.printing import console as _console
    from ipj_edge.energy import Meter
    from ipj_edge.errors import ConfigError

    if bool(command) == bool(trigger):
        raise ConfigError("give either a command to measure, after --, or --trigger stdin")
    _console.check_json(json_path)
    probes = probes or ("auto",)
    meter = Meter(
        probes,
        options=collect(given, probes),
        require_measured=require_measured,
        error=_parse.percent(error),
    )
    with meter:
        to_stderr = json_path == "-"
        document, readings, code = _triggered(meter, to_stderr) if trigger else _child(meter, name, command, to_stderr)
    if json_path is not None:
        _console.write_json(document, json_path)
    if trigger and not readings:
        _console.warn("no window was marked: lines 'start [NAME]' and 'stop [INFERENCES]' on stdin do that")
    if require_measured and code not in INTERRUPTED and not _all_measured(readings):
        click.echo("ipj-edge: a measured figure is required and there is none", err=True)
        code = UNAVAILABLE
    sys.exit(code)


def _child(
    meter: Meter, name: str, command: tuple[str, ...], to_stderr: bool
) -> tuple[dict[str, Any], list[Reading], int]:
    from ipj_edge.cli.printing.readings import record, show
    from ipj_edge.cli.running.child import run

    with meter.window(name) as window:
        code = run(command)
    show(window.readings, name, to_stderr=to_stderr)
    document: dict[str, Any] = {"name": name, "command": list(command), "exit_code": code}
    document |= record(window.reading)
    document["readings"] = [record(reading) for reading in window.readings]
    return document, list(window.readings), code


def _triggered(meter: Meter, to_stderr: bool) -> tuple[dict[str, Any], list[Reading], int]:
    from ipj_edge.cli.printing.readings import record, show
    from ipj_edge.cli.running.trigger import windows

    entries: list[dict[str, Any]] = []
    readings: list[Reading] = []
    code = 0
    try:
        for window in windows(meter, sys.stdin, lambda text: click.echo(f"ipj-edge: {text}", err=True)):
            show(window.readings, window.name, to_stderr=to_stderr)
            readings += window.readings
            entries.append({"name": window.name, "inferences": window.inferences} | record(window.reading))
            entries[-1]["readings"] = [record(reading) for reading in window.readings]
    except KeyboardInterrupt as error:
        code = exit_code(error)
    return {"windows": entries}, readings, code


def _all_measured(readings: Sequence[Reading]) -> bool:
    """Say whether there are figures and all of them are measured."""
    return bool(readings) and all(one.joules is not None and one.provenance != "modelled" for one in readings)
