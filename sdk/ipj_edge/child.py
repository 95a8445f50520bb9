"""Python processes of our own: what may die with its engine runs in one, and not in us."""

from __future__ import annotations

import os
import subprocess
import sys


def command(module: str, *arguments: object) -> list[str]:
    """Return the command line that runs a module of ours."""
    return [sys.executable, "-m", module, *map(str, arguments)]


def environment() -> dict[str, str]:
    """Return what a child is started with: our own environment, and no imports from the working directory.

    A user's ``onnx.py`` or ``model.py`` there would be imported in place of a package (Python 3.11 and newer).
    """
    return {**os.environ, "PYTHONSAFEPATH": "1"}


def run(module: str, *arguments: object, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a module of ours to its end and return what it wrote.

    Raises:
        subprocess.TimeoutExpired: it did not end in time, and was ended.
    """
    return subprocess.run(
        command(module, *arguments),
        capture_output=True,
        encoding="utf-8",
        errors="replace",  # what a dying engine writes need not be text
        timeout=timeout_s,
        check=False,
        env=environment(),
    )


def last_line(text: str) -> str:
    """Return the last line of what a child wrote, which says why it ended; empty when it wrote nothing."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else ""
