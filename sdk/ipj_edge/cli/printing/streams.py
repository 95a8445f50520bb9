"""Standard output and error as they are: a terminal of another encoding, a closed pipe, a full disk."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

OUTPUT_FAILED = 2


def tolerate_encodings() -> None:
    """Write what an encoding lacks as a question mark: a figure must not be lost for its ± sign."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def flushed(code: int) -> int:
    """Flush standard output and return the exit code: 2 where the output could not be written.

    A reader that has seen enough (``| head``) is no failure.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard()
    except OSError as error:
        discard()
        with suppress(OSError):
            print(f"ipj-edge: cannot write the output: {error.strerror}", file=sys.stderr)  # noqa: T201 # after click
        return code or OUTPUT_FAILED
    return code


def discard() -> None:
    """Have the interpreter flush into nothing at its end: there it would complain once more."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
