"""Run a .tflite file that nobody has proven yet, in a process of its own: some kill their engine.

``python -m ipj_edge_converters.tflite.child FILE QUESTION ANSWER`` feeds the arrays of QUESTION, named
``SAMPLE/ARGUMENT``, and writes what the file's signature answers under the same kind of names.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ipj_edge import child
from ipj_edge.errors import ConversionError
from ipj_edge.plugins import needs
from ipj_edge.protocols import Array

TIMEOUT_S = 600.0


def run_apart(data: bytes, samples: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
    """Run a file on samples, each by argument of its only signature, and return what it answers to each.

    Raises:
        ConversionError: the engine died on the file, or refused it.
    """
    with TemporaryDirectory(prefix="ipj-edge-") as name:
        file, question, answer = (Path(name) / each for each in ("model.tflite", "question.npz", "answer.npz"))
        file.write_bytes(data)
        asked: dict[str, Any] = {
            f"{row}/{key}": value for row, each in enumerate(samples) for key, value in each.items()
        }
        np.savez(question, **asked)
        ran = child.run(__spec__.name, file, question, answer, timeout_s=TIMEOUT_S)
        if ran.returncode != 0:
            said = child.last_line(ran.stderr) or "no message"
            raise ConversionError(f"the engine fails on the converted file (exit code {ran.returncode}): {said}")
        with np.load(answer, allow_pickle=False) as arrays:
            return _rows({key: arrays[key] for key in arrays.files}, len(samples))


def _rows(arrays: Mapping[str, Array], count: int) -> list[dict[str, Array]]:
    rows: list[dict[str, Array]] = [{} for _ in range(count)]
    for name, value in arrays.items():
        row, _, key = name.partition("/")
        rows[int(row)][key] = value
    return rows


def main(file: str, question: str, answer: str) -> None:
    """Run the samples in a question through a file and write its answers."""
    with needs("convert"):
        from ai_edge_litert import interpreter
    # The reference kernels: what the file means, not what a delegate makes of it.
    plain = interpreter.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    runner = interpreter.Interpreter(model_path=file, experimental_op_resolver_type=plain).get_signature_runner()
    kinds = {name: detail["dtype"] for name, detail in runner.get_input_details().items()}
    with np.load(question, allow_pickle=False) as arrays:
        asked = {key: arrays[key] for key in arrays.files}
    rows = 1 + max(int(name.partition("/")[0]) for name in asked)
    answers = {
        f"{row}/{key}": value
        for row, feeds in enumerate(_rows(asked, rows))
        for key, value in runner(**{name: array.astype(kinds[name]) for name, array in feeds.items()}).items()
    }
    np.savez(answer, **answers)


if __name__ == "__main__":
    main(*sys.argv[1:4])
