"""All printing: tables and lines on stdout, progress and warnings on stderr, JSON for programs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ipj_edge.cli.options.verbosity import verbosity
from ipj_edge.units import bytes_text, joules_text, seconds_text

__all__ = [
    "bytes_text",
    "check_json",
    "joules_text",
    "note",
    "progress",
    "say",
    "seconds_text",
    "table",
    "warn",
    "write_json",
]


_LEAST_COLUMN = 10  # letters that a column of a table needs to be read


def say(text: str) -> None:
    """Print a line on stdout."""
    click.echo(text)


def warn(text: str) -> None:
    """Print a warning on stderr."""
    click.echo(f"warning: {text}", err=True)


def note(text: str) -> None:
    """Print a note on stderr: worth knowing, nothing wrong."""
    if verbosity() != "quiet":
        click.echo(f"note: {text}", err=True)


def progress(text: str) -> None:
    """Print a line of progress on stderr."""
    if verbosity() != "quiet":
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
    console = Console(color_system=None if os.environ.get("NO_COLOR") else "auto")
    if console.is_terminal:
        natural = console.measure(grid, options=console.options.update(width=10_000)).maximum
        if console.width < _LEAST_COLUMN * len(columns) and console.width < natural:
            _blocks(columns, rows)
        else:
            console.print(grid)
        return
    # Piped output is read by programs and people's greps: neither wrapped to 80 columns nor padded.
    console = Console(width=max(400, console.width))
    with console.capture() as capture:
        console.print(grid)
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def _blocks(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under each other, a line a cell: on a narrow terminal a table would be columns of single letters."""
    for row in rows:
        for column, cell in zip(columns, row, strict=True):
            if cell:
                click.echo(f"{column}: {cell}" if column else cell)
        click.echo()


def check_json(path: str | None) -> None:
    """Refuse, before the work, a place for JSON that cannot be written; a file that is there is replaced.

    Raises:
        DestinationError: names the place.
    """
    from ipj_edge.benchmark.result.files import check_free

    check_free([path], force=True)


def write_json(value: Any, path: str) -> None:
    """Write JSON to a file, or to stdout for ``-``.

    Raises:
        DataError: a number is not finite, which JSON has no word for.
        DestinationError: the file cannot be written.
    """
    from ipj_edge.benchmark.result.files import encode
    from ipj_edge.writing import write_file

    content = encode(value)
    if path == "-":
        # As bytes: JSON is UTF-8 whatever the terminal's encoding is.
        click.echo(content, nl=False)
    else:
        write_file(Path(path), content)
