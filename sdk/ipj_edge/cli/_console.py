"""All printing: tables and lines on stdout, progress and warnings on stderr, JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec


def say(text: str) -> None:
    """Print a line on stdout."""
    click.echo(text)


def warn(text: str) -> None:
    """Print a warning on stderr."""
    click.echo(f"warning: {text}", err=True)


def note(text: str) -> None:
    """Print a note on stderr: worth knowing, nothing wrong."""
    click.echo(f"note: {text}", err=True)


def progress(text: str) -> None:
    """Print a line of progress on stderr."""
    click.echo(f"· {text}", err=True)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """Print a table on stdout; columns named in right are flushed right."""
    from rich.console import Console
    from rich.table import Table

    grid = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        grid.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(cell.replace("[", r"\[") for cell in row))
    console = Console()
    # Piped output is read by programs and people's greps: never wrap it to 80 columns.
    if not console.is_terminal:
        console = Console(width=max(400, console.width))
    console.print(grid)


def to_json(value: Any) -> str:
    """Return indented JSON of a value; NaN and infinity are refused, they are not JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def write_json(value: Any, path: str) -> None:
    """Write JSON to a file, or to stdout for ``-``."""
    if path == "-":
        click.echo(to_json(value))
    else:
        Path(path).write_text(to_json(value) + "\n")


def bytes_text(size: int) -> str:
    """Write a size in bytes: ``812 B``, ``14.2 kB``, ``3.61 MB``."""
    if size < 1000:
        return f"{size} B"
    return f"{size / 1e3:.1f} kB" if size < 1e6 else f"{size / 1e6:.2f} MB"


def seconds_text(seconds: float) -> str:
    """Write seconds with a fitting unit: ``12.3 µs``, ``4.56 ms``, ``7.89 s``."""
    if seconds < 1e-3:
        return f"{1e6 * seconds:.1f} µs"
    return f"{1e3 * seconds:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


def joules_text(joules: float) -> str:
    """Write joules with a fitting unit: ``12.3 µJ``, ``4.56 mJ``, ``7.89 J``."""
    for factor, unit in ((1e-6, "µJ"), (1e-3, "mJ")):
        if abs(joules) < 1000 * factor:
            return f"{joules / factor:.3g} {unit}"
    return f"{joules:.4g} J"
