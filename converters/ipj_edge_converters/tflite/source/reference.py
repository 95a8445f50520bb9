"""A .tflite file run in a process of its own; see `ipj_edge_converters.tflite.source.child`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ipj_edge.errors import SourceError
from ipj_edge.protocols import Array
from ipj_edge_converters.sources.apart import Apart

Stateful = Literal["", "variable", "resource"]


class EngineRefusesError(Exception):
    """The engine does not load the file; the message is the engine's."""


class TfliteReference:
    """The file in a child process, which lives as long as this does."""

    def __init__(self, path: Path, stateful: Stateful, file: str) -> None:
        """Open a file.

        Args:
            path: The file.
            stateful: How what it keeps between inferences is set back.
            file: The source's name, for messages.

        Raises:
            EngineRefusesError: the engine does not load it.
            EngineCrashError: the engine died on it.
            SourceLimitError: it takes more time or memory than a source may.
        """
        self._apart = Apart(
            "ipj_edge_converters.tflite.source.child", path, stateful,
            engine="ai-edge-litert", file=file, errors=path.with_suffix(".stderr"),
        )  # fmt: skip
        facts, _ = self._apart.ask({"open": True}, {})
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
            SourceLimitError: it takes more time or memory than a source may.
            SourceError: the engine failed on these inputs.
        """
        question: Mapping[str, Any] = {"step": step, "batched": list(batched), "joined": list(joined)}
        facts, answers = self._apart.ask(question, {str(number): array for number, array in enumerate(arrays)})
        if "error" in facts:
            raise SourceError(f"the model fails on inputs of {[array.shape for array in arrays]}: {facts['error']}")
        return list(answers.values())

    def close(self) -> None:
        """End the child. Calling twice is allowed."""
        self._apart.close()
