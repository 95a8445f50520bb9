"""Tunings of early exits, as ``ipj-edge exits tune --json`` writes them."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ipj_edge.errors import DataError, reading
from ipj_edge.exits import TunedBundle


def read_tuned(path: Path) -> TunedBundle:
    """Read a tuning.

    Raises:
        DataError: no such content.
    """
    with reading(f"{path} as a result of `ipj-edge exits tune --json`", DataError):
        tuned = msgspec.json.decode(path.read_bytes(), type=TunedBundle)
    return tuned if tuned.name else msgspec.structs.replace(tuned, name=path.stem)


def is_tuned(path: Path) -> bool:
    """Say whether a file looks like a tuning and not like a result."""
    try:
        content = msgspec.json.decode(path.read_bytes())
    except (OSError, ValueError, RecursionError):  # whoever reads it as a result says what is wrong with it
        return False
    return isinstance(content, dict) and "results" not in content and "record" in content
