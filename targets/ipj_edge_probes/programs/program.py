"""Asking a program for its figures: found on the search path, bounded in time, never through a shell."""

from __future__ import annotations

import shutil
import subprocess

from ipj_edge import child
from ipj_edge_probes.refusal import UnreadableError


def find_program(name: str, search_path: str | None, fix: str) -> str:
    """Return the path of a program.

    Args:
        name: Name of the program.
        search_path: Folders to look in, as in PATH; None for the search path of this process.
        fix: What to do when it is missing.

    Raises:
        UnreadableError: it is not there.
    """
    found = shutil.which(name, path=search_path)
    if found is None:
        raise UnreadableError(f"'{name}' is not on the search path", fix)
    return found


def output_of(command: tuple[str, ...], timeout_s: float) -> str:
    """Run a program and return what it printed.

    Raises:
        UnreadableError: it failed, could not be started or took too long; carries its last words.
    """
    name = command[0].rpartition("/")[2]
    try:
        done = child.run_program(command, timeout_s=timeout_s, light=True)
    except subprocess.TimeoutExpired as error:
        raise UnreadableError(f"'{name}' gave no answer within {timeout_s:g} s") from error
    except OSError as error:
        raise UnreadableError(f"'{name}' cannot be started: {error.strerror}") from error
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split())[:200] or "nothing"
        raise UnreadableError(f"'{name}' ended with exit code {done.returncode} and said: {said}")
    return done.stdout
