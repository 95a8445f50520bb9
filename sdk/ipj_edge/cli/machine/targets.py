"""``ipj-edge targets``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ipj_edge.protocols import Target
    from ipj_edge.values import Availability


@click.command("targets")
@click.option("--json", "json_path", metavar="FILE", help="Write the list as JSON; - is stdout.")
def command(json_path: str | None) -> None:
    """List the targets and what works here, what does not, why, and the command that fixes it."""
    from ipj_edge.cli.findings.looking import look_at
    from ipj_edge.cli.printing import console as _console
    from ipj_edge.plugins import TARGETS, names

    _console.check_json(json_path)
    found = [look_at(name) for name in names(TARGETS)]
    if json_path is not None:
        _console.write_json([_entry(*each) for each in found], json_path)
    if json_path != "-":
        _console.table(("target", "works", "engine", "precisions", "what to know"), [_row(*each) for each in found])


def _entry(name: str, target: Target | None, availability: Availability) -> dict[str, Any]:
    return {
        "name": name,
        "engine": None if target is None else target.engine,
        "precisions": () if target is None else target.precisions,
        "boundaries": () if target is None else target.boundaries,
        "availability": availability,
    }


def _row(name: str, target: Target | None, availability: Availability) -> tuple[str, ...]:
    return (
        name,
        "yes" if availability.available else "no",
        "" if target is None else f"{target.engine} {availability.version}".strip(),
        "" if target is None else ", ".join(target.precisions),
        " · ".join(filter(None, (availability.reason, availability.fix))),
    )
