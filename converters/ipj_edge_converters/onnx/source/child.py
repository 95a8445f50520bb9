"""The process that runs an .onnx source: ``python -m ipj_edge_converters.onnx.source.child PIPE CPU_S FILE``.

A file of a stranger can loop without end, take all memory or kill its engine: here that ends this process alone.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from ipj_edge.errors import ConversionError, MissingDependencyError, UnsupportedError, typed_line
from ipj_edge.plugins import needs
from ipj_edge.protocols import Array
from ipj_edge_converters.onnx.runtime import plain_session
from ipj_edge_converters.sources.answers import answer


class _Replies:
    """Answers to the question ``open``, a name for messages, and to arrays by name of the input."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._session: Any = None

    def __call__(self, facts: dict[str, Any], arrays: dict[str, Array]) -> tuple[dict[str, Any], dict[str, Array]]:
        """Answer one question."""
        if "open" not in facts:
            return self._run(arrays)
        self._session = None  # one model at a time in memory
        try:
            self._session = plain_session(self._path.read_bytes(), facts["open"])
        except UnsupportedError as error:
            return {"refused": str(error), "operators": list(error.operators)}, {}
        except ConversionError as error:
            return {"refused": str(error)}, {}
        return {}, {}

    def _run(self, arrays: dict[str, Array]) -> tuple[dict[str, Any], dict[str, Array]]:
        try:
            answers = self._session.run(None, arrays)
        except Exception as error:  # noqa: BLE001  onnxruntime's own classes have no common base
            return {"error": typed_line(error)}, {}
        return {}, {str(number): array for number, array in enumerate(answers)}


if __name__ == "__main__":
    with suppress(MissingDependencyError), needs("convert"):  # said when the first file is opened
        import onnxruntime  # noqa: F401  while the parent reads the file
    sys.exit(answer(int(sys.argv[1]), int(sys.argv[2]), _Replies(Path(sys.argv[3]))))
