"""Reading a file that somebody named: a refusal in one line, never a traceback."""

from __future__ import annotations

from pathlib import Path

from ipj_edge.errors import SourceError


def read_file(path: Path) -> bytes:
    """Read a file.

    Raises:
        SourceError: missing or unreadable.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise SourceError(f"no such file: {path}") from error
    except OSError as error:
        raise SourceError(f"cannot read {path}: {error.strerror}") from error
