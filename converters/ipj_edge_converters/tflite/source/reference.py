"""A .tflite file run in a process of its own; see `tflite_child`."""

from __future__ import annotations

import subprocess
import weakref
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Literal

from ipj_edge import child
from ipj_edge.errors import EngineCrashError, SourceError
from ipj_edge.protocols import Array
from ipj_edge_converters.tflite.source.frames import receive, send

TIMEOUT_S = 900.0
_ENGINE = "ai-edge-litert"
Stateful = Literal["", "variable", "resource"]


class EngineRefusesError(Exception):
    """The engine does not load the file; the message is the engine's."""


class TfliteReference:
    """The file in a child process. Lives until it is dropped; the child ends with it, whatever ends the parent."""

    def __init__(self, path: Path, stateful: Stateful) -> None:
        self._errors = path.with_suffix(".stderr")
        ours, theirs = Pipe()
        module = "ipj_edge_converters.tflite.source.child"
        with theirs, self._errors.open("wb") as errors:
            self._child = subprocess.Popen(
                child.command(module, path, theirs.fileno(), stateful),
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                pass_fds=(theirs.fileno(),),
                env=child.environment(),
            )
        self._pipe = ours
        self._end = weakref.finalize(self, _end, self._child, ours)
        facts, _ = self._receive()
        if "error" in facts:
            raise EngineRefusesError(facts["error"])

    def run(
        self, arrays: Sequence[Array], *, step: int, batched: Sequence[bool], joined: Sequence[bool]
    ) -> list[Array]:
        """Run stored values (integers where the file has them) and return stored outputs, in the file's order.

        Args:
            arrays: One array per input.
            step: Samples the file takes at once.
            batched: Which inputs have a batch axis.
            joined: Which outputs have one.

        Raises:
            EngineCrashError: the engine died on the file.
            SourceError: the engine failed on these inputs.
        """
        question: Mapping[str, Any] = {"step": step, "batched": list(batched), "joined": list(joined)}
        try:
            send(self._pipe, question, {str(number): array for number, array in enumerate(arrays)})
        except OSError as error:
            raise self._crash() from error
        facts, answers = self._receive()
        if "error" in facts:
            raise SourceError(f"the model fails on inputs of {[array.shape for array in arrays]}: {facts['error']}")
        return list(answers.values())

    def close(self) -> None:
        """End the child. Calling twice is allowed."""
        self._end()

    def _receive(self) -> tuple[dict[str, Any], dict[str, Array]]:
        try:
            if not self._pipe.poll(TIMEOUT_S):
                self._child.kill()
                raise EngineCrashError(_ENGINE, -9, f"no answer in {TIMEOUT_S:g} s")
            return receive(self._pipe)
        except (EOFError, OSError) as error:
            raise self._crash() from error

    def _crash(self) -> EngineCrashError:
        returncode = self._child.wait(TIMEOUT_S)
        lines = [line for line in self._errors.read_text(errors="replace").splitlines() if line.strip()]
        # What the engine says when it starts ("INFO: …") is not why it died.
        told = [line.strip() for line in lines if not line.startswith(("INFO", "WARNING", "W0000"))]
        return EngineCrashError(_ENGINE, returncode, told[-1][:300] if told else "")


def _end(process: subprocess.Popen[bytes], pipe: Connection) -> None:
    pipe.close()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
