"""An untrusted source run in a process of its own: one child with limits answers all questions about a file."""

from __future__ import annotations

import subprocess
import weakref
from collections.abc import Mapping
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

from ipj_edge import child
from ipj_edge.errors import EngineCrashError, IpjEdgeError, SourceError
from ipj_edge.protocols import Array
from ipj_edge_converters.sources.frames import receive, send

ANSWER_S = 600.0  # for one answer: a file that needs longer has no end, as far as we can tell
Answer = tuple[dict[str, Any], dict[str, Array]]


class SourceLimitError(SourceError):
    """The file takes more time or memory than a source may; asking again does not help."""


class Apart:
    """A child that answers questions. Lives until it is dropped; the child ends with it, whatever ends the parent."""

    def __init__(self, module: str, *arguments: object, engine: str, file: str, errors: Path) -> None:
        """Start a child without waiting for it.

        Args:
            module: Runs as ``python -m MODULE PIPE CPU_S ARGUMENT…``, and answers with `sources.answers.answer`.
            arguments: Handed on to it.
            engine: Name of the engine in it, for messages.
            file: Name of the source, for messages.
            errors: File for what it writes to stderr.
        """
        self._engine, self._file, self._errors = engine, file, errors
        self._seconds, self._limits = ANSWER_S, child.limits(ANSWER_S)
        self._ended: IpjEdgeError | None = None
        ours, theirs = Pipe()
        words = child.command(module, theirs.fileno(), self._limits.cpu_s, *arguments)
        with theirs, errors.open("wb") as stderr:
            self._child = subprocess.Popen(
                child.kept(words, self._limits),
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                pass_fds=(theirs.fileno(),),
                env=child.environment(),
            )
        self._pipe = ours
        self._end = weakref.finalize(self, _end, self._child, ours)

    def ask(self, facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> Answer:
        """Send facts and arrays, and return the answer's; what the engine refused is the fact ``error``.

        Raises:
            SourceLimitError: no answer within the time or the memory that a source may take.
            EngineCrashError: the engine died on the file.
        """
        if self._ended is None:
            try:
                send(self._pipe, facts, arrays)
                if self._pipe.poll(self._seconds):
                    return receive(self._pipe)
                self._ended = self._limited(f"it gave no answer in {self._seconds:g} s")
                self.close()
            except (EOFError, OSError):
                self._ended = self._died()
        raise self._ended

    def close(self) -> None:
        """End the child. Calling twice is allowed."""
        self._end()

    def _died(self) -> IpjEdgeError:
        self._pipe.close()
        returncode = self._child.wait(self._seconds)
        text = self._errors.read_text(errors="replace")
        if reason := child.why(returncode, text, self._limits):
            return self._limited(reason)
        # What the engine says when it starts ("INFO: …") is not why it died.
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        told = [line for line in lines if not line.startswith(("INFO", "WARNING", "W0000"))]
        return EngineCrashError(self._engine, returncode, told[-1][:300] if told else "")

    def _limited(self, reason: str) -> SourceLimitError:
        return SourceLimitError(
            f"'{self._file}' does not end in {self._engine}: {reason}; "
            "look for an endless loop in it, or make it smaller"
        )


def _end(process: subprocess.Popen[bytes], pipe: Connection) -> None:
    pipe.close()
    try:
        process.wait(0.5)  # the child ends by itself unless it computes
    except subprocess.TimeoutExpired:
        child.end_kept(process)
