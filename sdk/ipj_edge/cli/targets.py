"""``ipj-edge targets``."""

from __future__ import annotations

import click


@click.command("targets")
@click.option("--json", "json_path", metavar="FILE", help="Write the list as JSON; - is stdout.")
def command(json_path: str | None) -> None:
    """List the targets and what works here, what does not, why, and the command that fixes it."""
    from ipj_edge.cli import _console
    from ipj_edge.plugins import TARGETS, load_target, names

    found = [(target, target.availability()) for target in map(load_target, names(TARGETS))]
    if json_path is not None:
        entries = [
            {
                "name": target.name,
                "engine": target.engine,
                "precisions": target.precisions,
                "boundaries": target.boundaries,
                "availability": availability,
            }
            for target, availability in found
        ]
        _console.write_json(entries, json_path)
    if json_path != "-":
        rows = [
            (
                target.name,
                "yes" if availability.available else "no",
                f"{target.engine} {availability.version}".strip(),
                ", ".join(target.precisions),
                " · ".join(filter(None, (availability.reason, availability.fix))),
            )
            for target, availability in found
        ]
        _console.table(("target", "works", "engine", "precisions", "what to know"), rows)
