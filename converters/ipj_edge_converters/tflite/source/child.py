"""The process that runs a .tflite source.

``python -m ipj_edge_converters.tflite.source.child PIPE CPU_S FILE STATEFUL`` is started by `sources.apart`.
A broken file can kill its engine, and with it the process. The engine's own operators compute, without the delegate
that engines use by default: the file as it is written, so that a target is held against the model and not itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ipj_edge.protocols import Array
from ipj_edge_converters.sources.answers import answer


class _Engine:
    """An interpreter of one file, with inputs and outputs in the file's order."""

    def __init__(self, path: str) -> None:
        from ai_edge_litert import interpreter

        self._open: Callable[[], Any] = lambda: interpreter.Interpreter(
            model_path=path,
            num_threads=1,
            experimental_op_resolver_type=interpreter.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        )
        self.start()

    def start(self) -> None:
        """Open the file anew: everything it keeps between inferences is as after loading."""
        self._interpreter: Any = self._open()
        self._interpreter.allocate_tensors()
        self._inputs = [int(each["index"]) for each in self._interpreter.get_input_details()]
        self._outputs = [int(each["index"]) for each in self._interpreter.get_output_details()]

    def reset(self) -> None:
        """Set the variables of recurrent operators back to zero."""
        self._interpreter.reset_all_variables()

    def run(self, arrays: list[Array]) -> list[Array]:
        """Run one batch of the file's size."""
        for index, array in zip(self._inputs, arrays, strict=True):
            self._interpreter.set_tensor(index, array)
        self._interpreter.invoke()
        return [self._interpreter.get_tensor(index) for index in self._outputs]


class _Replies:
    """Answers to the question ``open``, then to ``step``, ``batched`` and ``joined`` with arrays, one per input."""

    def __init__(self, path: str, stateful: str) -> None:
        self._path, self._stateful = path, stateful

    def __call__(self, facts: dict[str, Any], arrays: dict[str, Array]) -> tuple[dict[str, Any], dict[str, Array]]:
        """Answer one question."""
        if "open" in facts:
            self._engine = _Engine(self._path)
            self._reset = {"variable": self._engine.reset, "resource": self._engine.start}.get(self._stateful)
            return {}, {}
        answers = _answers(self._engine, list(arrays.values()), facts, self._reset)
        return {}, {str(number): array for number, array in enumerate(answers)}


def _answers(
    engine: _Engine, arrays: list[Array], facts: dict[str, Any], reset: Callable[[], None] | None
) -> list[Array]:
    """Run every sample from a fresh state and join the outputs that have a batch axis."""
    step, batched = int(facts["step"]), list(facts["batched"])
    samples = next((len(array) for array, has in zip(arrays, batched, strict=True) if has), step)
    parts = []
    for start in range(0, samples, step):
        if reset is not None:
            reset()
        part = [array[start : start + step] if has else array for array, has in zip(arrays, batched, strict=True)]
        parts.append(engine.run(part))
    joined = list(facts["joined"])
    return [
        np.concatenate([part[number] for part in parts]) if has else parts[0][number]
        for number, has in enumerate(joined)
    ]


if __name__ == "__main__":
    sys.exit(answer(int(sys.argv[1]), int(sys.argv[2]), _Replies(*sys.argv[3:5])))
