"""``ipj-edge compress``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


@click.command("compress")
@click.argument("recipe", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "-o", "--into", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder of the run."
)
@click.option("--json", "json_path", metavar="FILE", help="Also write the report as JSON; - is stdout.")
def command(recipe: Path, into: Path, json_path: str | None) -> int:
    """Run a RECIPE (TOML) that trains, distils, prunes, factorises, adds exits to and quantizes a model.

    A run that was interrupted goes on where it was. RECIPE names factories and is trusted input: it runs their code.
    The folder of a finished run is a source for ipj-edge convert.
    """
    from ipj_edge.cli.printing import console as _console
    from ipj_edge.plugins import load_recipe_runner

    _console.check_json(json_path)
    report = load_recipe_runner("compress").run(recipe, into, _console.progress)
    if json_path != "-":
        _print(report)
    if json_path is not None:
        _console.write_json(report, json_path)
    return 0


def _print(report: dict[str, Any]) -> None:
    from ipj_edge.cli.printing import console as _console

    columns = ("step", "accuracy", "MACs", "parameters", "bytes", "energy")
    _console.table(columns, [_row(entry) for entry in report["steps"]], right=columns[2:])
    for entry in report["steps"]:
        for warning in entry["warnings"]:
            _console.warn(f"{entry['do']}: {warning}")
        if entry["energy"]["joules"] is None:
            _console.note(f"{entry['do']}: no joules: {entry['energy']['reason']}")
    energy = report["energy"]
    reason = f": {energy['reason']}" if energy["joules"] is None else ""
    _console.say(f"energy of the whole run: {_joules(energy)} ({energy['provenance']}, {energy['boundary']}){reason}")
    if report["accuracy_per_joule"] is not None:
        _console.say(f"intelligence per joule of training: {report['accuracy_per_joule']:.3g} (accuracy per joule)")
    if report["payback"] is not None:
        _console.say(f"payback: {_payback(report['payback'])}")


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    from ipj_edge.cli.printing import console as _console

    before, after = entry["before"], entry["after"]
    shown = " / ".join(f"{one:.4f}" for one in after["accuracy"])
    return (
        entry["do"],
        f"{before['accuracy'][-1]:.4f} → {shown}",
        f"{after['size']['macs']:,}",
        f"{after['size']['parameters']:,}",
        _console.bytes_text(after["size"]["bytes"]),
        _joules(entry["energy"]),
    )


def _joules(energy: dict[str, Any]) -> str:
    from ipj_edge.cli.printing import console as _console

    return "none" if energy["joules"] is None else _console.joules_text(energy["joules"])


def _payback(found: dict[str, Any]) -> str:
    if found["inferences"] is None:
        return f"none: {found['reason']}"
    high = "no upper end" if found["high"] is None else f"{found['high']:.3g}"
    return f"after {found['inferences']:.3g} inferences (95 %: {found['low']:.3g} to {high})"
