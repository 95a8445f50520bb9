"""One case: files in a folder, and one thing that ipj-edge is asked to do with them."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What is tried.

    Attributes:
        kind: Name of the kind of file.
        files: Files by path below the case's folder.
        links: Symbolic links by path: where each leads.
        words: What is done: ``cli`` and the arguments of a command line, or the name of a call and its arguments.
    """

    kind: str
    files: dict[str, bytes]
    links: dict[str, str] = {}
    words: tuple[str, ...]

    def write(self, folder: Path) -> None:
        """Write the files into an empty folder."""
        for name, data in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        for name, place in self.links.items():
            os.symlink(place, folder / name)


class Told(msgspec.Struct, kw_only=True):
    """What came of a case.

    Attributes:
        outcome: ``clean``; or ``traceback``, ``code`` (an exit code that its kind does not have), ``lines`` (a refusal
            that is not one line), ``write`` (outside of its folder), ``left`` (a temporary file stayed), ``network``,
            ``died`` (a signal ended the child) or ``hang``.
        note: What it said, or where it failed.
        seconds: CPU time of it.
    """

    outcome: str
    note: str = ""
    seconds: float = 0.0


def files_of(folder: Path, prefix: str = "") -> dict[str, bytes]:
    """Return the files of a folder, by path behind a prefix."""
    return {
        prefix + path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
