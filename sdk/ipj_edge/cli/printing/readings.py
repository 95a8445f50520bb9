"""Readings as a table for people and as records for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ipj_edge.values import Reading


def record(reading: Reading) -> dict[str, Any]:
    """Return the fields of ``measure --json`` for one reading."""
    watts = reading.joules / reading.seconds if reading.joules is not None and reading.seconds > 0 else None
    return {
        "joules": reading.joules,
        "reason": reading.reason,
        "seconds": reading.seconds,
        "watts": watts,
        "low": reading.low,
        "high": reading.high,
        "provenance": reading.provenance,
        "boundary": reading.boundary,
        "probe": reading.probe,
        "rails": reading.rails,
        "accuracy": reading.accuracy,
        "update_interval_s": reading.update_interval_s,
        "quantum_j": reading.quantum_j,
        "coverage": reading.coverage,
        "note": reading.note,
    }


def show(readings: Sequence[Reading], name: str, *, to_stderr: bool = False) -> None:
    """Print one line a reading, its rails and its note; to stderr where a program reads stdout."""
    for reading in readings:
        title = f"{name}: " if name else ""
        if reading.joules is None:
            click.echo(f"{title}{reading} ({reading.seconds:.3f} s)", err=to_stderr)
            continue
        watts = reading.joules / reading.seconds
        click.echo(f"{title}{reading.probe}: {reading} in {reading.seconds:.3f} s, {watts:.3g} W", err=to_stderr)
        if len(reading.rails) > 1:
            for rail, joules in reading.rails.items():
                click.echo(f"    {rail:<20} {joules:12.4f} J", err=to_stderr)
        if reading.note:
            click.echo(f"    {reading.note}", err=to_stderr)
