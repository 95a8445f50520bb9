"""The folder of public models and data: the one search for it, of benchmarks and tests alike."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

MISSING = "the folder of public models and data is missing (set IPJ_EDGE_DATA)"


def find() -> Path | None:
    """Return the folder that IPJ_EDGE_DATA names, or the nearest ``shared/data`` above; None where there is none."""
    named = os.environ.get("IPJ_EDGE_DATA")
    above = Path(__file__).resolve().parents
    candidates = [Path(named)] if named else [parent / "shared" / "data" for parent in above]
    return next((folder for folder in candidates if (folder / "README.md").is_file()), None)


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add the optional argument ``data``; where no folder is found, it has to be given."""
    found = find()
    text = "folder of public models and data"
    if found is None:
        parser.add_argument("data", type=Path, help=text)
    else:
        parser.add_argument("data", type=Path, nargs="?", default=found, help=f"{text} (here: {found})")
