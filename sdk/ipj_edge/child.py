"""Processes that we start: Python ones of our own, where an engine may die and not we, and programs of others."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from signal import SIGXCPU
from typing import Any, NamedTuple

from ipj_edge import child_keeper, host

MEMORY_SHARE = 0.8  # of the memory that is available when the child starts
# What the conversion of a 100 MB model needs, twice over.
LEAST_MEMORY = 2 * 1024**3
_KEEPER_GRACE_S = 15.0  # it gives up on an unkillable process after ten seconds
_OUT_OF_MEMORY = ("MemoryError", "bad_alloc", "bad allocation", "Unable to allocate", "Failed to allocate memory")


class ChildLimits(NamedTuple):
    """What a child may take.

    Attributes:
        memory_bytes: Data of one process (RLIMIT_DATA): heap and private mappings, not files that are mapped.
        cpu_s: Seconds of CPU time of one process, all its threads together (RLIMIT_CPU).
    """

    memory_bytes: int
    cpu_s: int


def limits(timeout_s: float) -> ChildLimits:
    """Return what a child may take that has some seconds to answer.

    Its memory is `MEMORY_SHARE` of what is available now, and at least `LEAST_MEMORY`; its CPU time is what all CPUs
    of this process give in that time. The time on the clock is kept by who waits; CPU time ends it without us.
    """
    memory = max(LEAST_MEMORY, int(MEMORY_SHARE * host.available_memory()))
    return ChildLimits(memory_bytes=memory, cpu_s=max(1, int(timeout_s * host.affinity()) + 1))


def why(returncode: int, said: str, limited: ChildLimits) -> str:
    """Return which limit ended a child, in words; empty when none did.

    Args:
        returncode: How it ended; negative for a signal.
        said: What it wrote to stderr, or its error.
        limited: What it was allowed.
    """
    if returncode == -SIGXCPU:
        return f"it used all of its {limited.cpu_s} s of CPU time"
    if any(word in said for word in _OUT_OF_MEMORY):
        return f"it needs more than the {limited.memory_bytes / 1024**3:.1f} GiB of memory it may take"
    return ""


def kept(words: Sequence[object], limited: ChildLimits) -> list[str]:
    """Return the command line that runs a program within limits, ended with its whole tree.

    Start it with this process as the parent. SIGTERM to it ends the tree.

    Raises:
        FileNotFoundError: there is no such program.
    """
    name, *arguments = map(str, words)
    if shutil.which(name) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    keeper = [sys.executable, "-I", "-S", str(child_keeper.__file__)]
    return [*keeper, *map(str, (os.getpid(), limited.memory_bytes, limited.cpu_s)), name, *arguments]


def command(module: str, *arguments: object) -> list[str]:
    """Return the command line that runs a module of ours."""
    return [sys.executable, "-m", module, *map(str, arguments)]


def environment() -> dict[str, str]:
    """Return what a child is started with: our own environment, and no imports from the working directory.

    A user's ``onnx.py`` or ``model.py`` there would be imported in place of a package (Python 3.11 and newer).
    """
    return {**os.environ, "PYTHONSAFEPATH": "1"}


def run(
    module: str, *arguments: object, timeout_s: float, limited: ChildLimits | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a module of ours to its end and return what it wrote; see `run_program`."""
    return run_program(command(module, *arguments), timeout_s=timeout_s, env=environment(), limited=limited)


def run_program(
    words: Sequence[str],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    limited: ChildLimits | None = None,
    light: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a program within limits and return what it wrote. All that it started ends with it.

    Args:
        words: The program and its arguments.
        timeout_s: Seconds it may take.
        env: Its environment; None for our own.
        cwd: Folder to run in; None for our own.
        limited: What it may take; None for `limits` of its seconds.
        light: No keeper, which costs about 20 ms of CPU time: for a program that is asked again and again while
            energy is measured. What it started ends with it only when it is out of time.

    Raises:
        subprocess.TimeoutExpired: it did not end in time, and was ended with all that it had started.
        OSError: it cannot be started.
    """
    limited = limited or limits(timeout_s)
    with subprocess.Popen(
        words if light else kept(words, limited),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",  # what a dying engine writes need not be text
        env=env,
        cwd=cwd,
    ) as process:
        try:
            if light:
                _limit(process.pid, limited)
            out, err = process.communicate(timeout=timeout_s)
        except BaseException:
            if light:
                _end_now(process)
            else:
                end_kept(process)
            raise
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def end_kept(process: subprocess.Popen[Any]) -> None:
    """End a process that `kept` started, with its tree. One that ended already is left alone."""
    process.terminate()
    try:
        process.wait(_KEEPER_GRACE_S)
    except subprocess.TimeoutExpired:  # stopped from outside, for instance
        _end_now(process)
        process.wait()


def _end_now(process: subprocess.Popen[Any]) -> None:
    # Programs are often scripts around the one that works: ending the script alone leaves that one running.
    started = started_by(process.pid)
    process.kill()
    end(started)


def _limit(pid: int, limited: ChildLimits) -> None:
    for which, most in ((resource.RLIMIT_DATA, limited.memory_bytes), (resource.RLIMIT_CPU, limited.cpu_s)):
        with suppress(OSError, ValueError):  # it ended already, or the system allows less anyway
            resource.prlimit(pid, which, (most, resource.prlimit(pid, which)[1]))


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
