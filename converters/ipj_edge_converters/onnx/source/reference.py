"""An .onnx file run in a process of its own; see `ipj_edge_converters.onnx.source.child`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ipj_edge.errors import SourceError, UnsupportedError
from ipj_edge.protocols import Array
from ipj_edge_converters.onnx.files import save_onnx
from ipj_edge_converters.sources.apart import Apart


class OnnxEngine:
    """The child that runs a source. It starts at once and imports onnxruntime while the file is still read."""

    def __init__(self, workdir: Path, file: str) -> None:
        self.file, self._opened = file, 0
        self._model = workdir / "asked.onnx"
        self._apart = Apart(
            "ipj_edge_converters.onnx.source.child", self._model,
            engine="onnxruntime", file=file, errors=workdir / "onnxruntime.stderr",
        )  # fmt: skip

    def open(self, model: Any) -> int:
        """Open a model in place of the one before, and return its number.

        Raises:
            UnsupportedError: onnxruntime has no kernel for an operator; names it.
            SourceError: onnxruntime refuses it for another reason, or takes too much time or memory.
            EngineCrashError: onnxruntime died on it.
        """
        save_onnx(model, self._model)
        self._opened += 1
        facts, _ = self._apart.ask({"open": self.file}, {})
        self._model.unlink()
        if "operators" in facts:
            raise UnsupportedError(facts["refused"], tuple(facts["operators"]))
        if said := facts.get("refused") or facts.get("error"):
            raise SourceError(said)
        return self._opened

    def run(self, opened: int, names: Sequence[str], arrays: Sequence[Array]) -> list[Array]:
        """Run the model of a number, which has to be the one that was opened last.

        Raises:
            SourceError: onnxruntime failed on these inputs, or takes too much time or memory.
            EngineCrashError: onnxruntime died on it.
        """
        if opened != self._opened:
            raise RuntimeError("another model was opened since")
        facts, answers = self._apart.ask({}, dict(zip(names, map(np.asarray, arrays), strict=True)))
        if "error" in facts:
            shown = ", ".join(f"{'x'.join(map(str, array.shape)) or 'scalar'} {array.dtype}" for array in arrays)
            raise SourceError(f"the model fails on inputs of {shown}: {facts['error']}")
        return list(answers.values())


class OnnxReference:
    """The model run as it is written, by onnxruntime with all graph optimisations off.

    An optimised session fuses operators and, in quantized models, computes in integers where the file says float
    between a DequantizeLinear and a QuantizeLinear: that is one engine's reading, and it depends on the CPU.
    Operator by operator the file's own meaning is computed, and a target is held against the model, not itself.
    """

    def __init__(self, model: Any, engine: OnnxEngine) -> None:
        self._engine, self._opened = engine, engine.open(model)
        self._inputs = [value.name for value in model.graph.input]

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """Run on inputs in order and return the outputs in order; raises as `OnnxEngine.run` does."""
        return self._engine.run(self._opened, self._inputs, arrays)
