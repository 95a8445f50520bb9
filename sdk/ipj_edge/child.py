"""Processes that we start: Python ones of our own, where an engine may die and not we, and programs of others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any


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
    return run_program(command(module, *arguments), timeout_s=timeout_s, env=environment())


def run_program(
    words: Sequence[str], *, timeout_s: float, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and return what it wrote. What it started ends with it when it does not end in time.

    Args:
        words: The program and its arguments.
        timeout_s: Seconds it may take.
        env: Its environment; None for our own.
        cwd: Folder to run in; None for our own.

    Raises:
        subprocess.TimeoutExpired: it did not end in time, and was ended with all that it had started.
        OSError: it cannot be started.
    """
    with subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",  # what a dying engine writes need not be text
        env=env,
        cwd=cwd,
    ) as process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except BaseException:
            # Programs are often scripts around the one that works: ending the script alone leaves that one running.
            started = started_by(process.pid)
            process.kill()
            end(started)
            raise
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def started_by(pid: int) -> list[Any]:
    """Return the processes that a process started, and those that these started, as ``psutil.Process``.

    Ask before the process ends: its children then have another parent.
    """
    import psutil

    with suppress(psutil.Error):
        found: list[Any] = psutil.Process(pid).children(recursive=True)
        return found
    return []


def end(processes: Sequence[Any], grace_s: float = 0.0) -> None:
    """End processes that still run: at once, or politely with a grace before.

    Args:
        processes: ``psutil.Process`` each, none of them a child of this process. One that ended is left alone, also
            when its number has gone to another.
        grace_s: Seconds they have after SIGTERM; 0 kills without asking.
    """
    import psutil

    running = list(processes)
    if grace_s > 0:
        for each in running:
            with suppress(psutil.Error):
                each.terminate()
        _, running = psutil.wait_procs(running, timeout=grace_s)
    for each in running:
        with suppress(psutil.Error):
            each.kill()


def last_line(text: str) -> str:
    """Return the last line of what a child wrote, which says why it ended; empty when it wrote nothing."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else ""
