"""The program ``onnx2tf``, run out of process: its pins clash with every package here.

What it does that a caller has to know (2.6.9): it overwrites its input file, so it gets a copy; it ends with exit
code 0 on some failures, so its output is looked at; it turns image inputs to channels last unless ``-kat`` names
them, and image outputs always.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ipj_edge import child
from ipj_edge.errors import ConversionError, TargetUnavailableError, UnsupportedError
from ipj_edge_converters.onnx.files import save_onnx

PROGRAM = "onnx2tf"
VERSION = "2.6.9"
TIMEOUT_S = 900.0

_INSTALL = (
    f"ONNX becomes TFLite through the program '{PROGRAM}', which is not on PATH. It needs an environment of its own "
    f"with Python 3.12 or newer: run tools/install-onnx2tf from the repository, or "
    f"python3.12 -m venv ~/onnx2tf && ~/onnx2tf/bin/pip install onnx2tf=={VERSION} && "
    "PATH=$PATH:~/onnx2tf/bin"
)
_OPERATORS = re.compile(r"(?:not (?:yet )?(?:supported|implemented)|[Uu]nsupported)[^\n]*?(?:op|OP|operator)[^\n]*")
_OPERATOR = re.compile(r"\b(?:op(?:_type)?|node_op|onnx_op|OP)s?['\"]?\s*[:=]\s*['\"]?([A-Z]\w+)")


def find_program() -> str:
    """Return where the program is.

    Raises:
        TargetUnavailableError: it is not on PATH; says how to get it.
    """
    program = shutil.which(PROGRAM)
    if program is None:
        raise TargetUnavailableError(_INSTALL)
    return program


def program_version(program: str) -> str:
    """Return the version the program states.

    Raises:
        ConversionError: it does not run.
    """
    ran = _run([program, "-V"], Path.cwd())
    lines = [line.strip() for line in ran.stdout.splitlines() if line.strip()]
    if ran.returncode != 0 or not lines:
        raise ConversionError(f"'{program} -V' fails: {_telling(ran.stdout + ran.stderr)}; install it again")
    return lines[-1]


def float_tflite(program: str, model: Any) -> bytes:
    """Return the float32 .tflite file that the program makes of an ONNX model with fixed sizes.

    Raises:
        UnsupportedError: it lacks an operator; names it where the program does.
        ConversionError: it fails, or leaves no file.
    """
    with TemporaryDirectory(prefix="ipj-edge-") as name:
        folder = Path(name)
        save_onnx(model, folder / "model.onnx")
        kept = [value.name for value in model.graph.input]
        command = [program, "-i", "model.onnx", "-o", "made", "-n", "-kat", *kept]
        ran = _run(command, folder)
        made = folder / "made" / "model_float32.tflite"
        if ran.returncode != 0 or not made.is_file():
            raise _failure(ran)
        return made.read_bytes()


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    try:
        return child.run_program(command, timeout_s=TIMEOUT_S, cwd=folder)
    except subprocess.TimeoutExpired as error:
        raise ConversionError(f"{PROGRAM} did not end in {TIMEOUT_S:g} s") from error
    except OSError as error:
        raise ConversionError(f"{PROGRAM} cannot be run: {error}") from error


def _failure(ran: subprocess.CompletedProcess[str]) -> ConversionError:
    said = ran.stdout + "\n" + ran.stderr
    how = f"exit code {ran.returncode}" if ran.returncode else "exit code 0, but no file"
    operators = tuple(sorted(set(_OPERATOR.findall(" ".join(_OPERATORS.findall(said))))))
    if operators:
        return UnsupportedError(
            f"{PROGRAM} has no form of {', '.join(operators)}: replace it in the model or choose another target",
            operators,
        )
    return ConversionError(f"{PROGRAM} made no .tflite file ({how}): {_telling(said)}")


def _telling(said: str) -> str:
    """Return the line of the program's output that says what went wrong, without its colours and progress bars."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", said)
    lines = [line.strip() for line in re.split(r"[\r\n]+", plain) if line.strip() and "it/s]" not in line]
    errors = [line for line in lines if re.search(r"\b(?:ERROR|\w*Error|\w*Exception)\b", line)]
    return ([*lines, "it says nothing"][:1] if not errors and not lines else (errors or lines)[-1:])[0][:300]
