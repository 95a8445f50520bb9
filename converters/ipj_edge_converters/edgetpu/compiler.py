"""Call ``edgetpu_compiler`` and read what it prints: it calls a model with nothing mapped "compiled successfully".

Formats: Edge TPU Compiler 2.0 to 16.0, option ``-s`` (show operations).
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import msgspec

from ipj_edge import child
from ipj_edge.errors import ConversionError, UnsupportedError

PROGRAM = "edgetpu_compiler"
MAPPED = "Mapped to Edge TPU"
TIMEOUT_S = 900.0
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_VERSION = re.compile(r"Edge TPU Compiler version ([\d.]+)")
_ROW = re.compile(r"^([A-Z][A-Z0-9_]*|[\w.-]+)\s+(\d+)\s{2,}(\S.*?)\s*$", re.MULTILINE)
_FAILURE = re.compile(r"^(?:ERROR: |Invalid model: |Compilation failed: |Internal compiler error).*", re.MULTILINE)
_MISSING_OPERATOR = re.compile(r"builtin opcode '(\w+)' version|unresolved custom op: ([^\s.]+)")


class OperatorRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the compiler's table: so many operators of a type, and what became of them."""

    type: str
    count: int
    status: str


class CompilerLog(msgspec.Struct, frozen=True, kw_only=True):
    """What the compiler printed.

    Attributes:
        version: Version of the compiler.
        subgraphs: Parts of the model that run on the Edge TPU; 0 when nothing does.
        operators: Operators in the model.
        on_chip_bytes: Weights cached in the Edge TPU's memory.
        off_chip_bytes: Weights sent to the Edge TPU in every inference.
        rows: The table of operators.
    """

    version: str
    subgraphs: int
    operators: int
    on_chip_bytes: int
    off_chip_bytes: int
    rows: tuple[OperatorRow, ...]

    def mapped(self) -> int:
        """Return how many operators run on the Edge TPU."""
        return sum(row.count for row in self.rows if row.status == MAPPED)


def find_compiler(search_path: str | None = None) -> str | None:
    """Return the compiler's path, or None where it is not installed.

    Args:
        search_path: Folders to look in, as in PATH; None for this process's own.
    """
    return shutil.which(PROGRAM, path=search_path)


def compile_model(program: str, model: Path, into: Path) -> tuple[Path, CompilerLog]:
    """Compile a file; return the compiled one and what the compiler said.

    Raises:
        UnsupportedError: the compiler cannot parse or compile the model, or mapped nothing.
        ConversionError: the compiler did not do what it does, or not in time.
    """
    try:
        ran = child.run_program([program, "-s", "-o", str(into), str(model)], timeout_s=TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise ConversionError(f"{PROGRAM} did not end in {TIMEOUT_S:g} s") from error
    except OSError as error:
        raise ConversionError(f"cannot run {program}: {error.strerror}") from error
    printed = f"{ran.stdout}\n{ran.stderr}"
    compiled = into / f"{model.stem}_edgetpu.tflite"
    if ran.returncode != 0 or not compiled.exists():
        raise _failure(printed, ran.returncode)
    log = parse_log(printed)
    (into / f"{model.stem}_edgetpu.log").unlink(missing_ok=True)
    if log.subgraphs == 0 or log.mapped() == 0:
        raise UnsupportedError(
            f"{PROGRAM} {log.version} mapped none of the {log.operators} operators, whatever it says of success: "
            f"{_first_statuses(log)}"
        )
    return compiled, log


def parse_log(printed: str) -> CompilerLog:
    """Read what the compiler printed about a model it compiled.

    Raises:
        ConversionError: it is not that.
    """
    version = _VERSION.search(printed)
    subgraphs = _number(printed, "Number of Edge TPU subgraphs")
    operators = _number(printed, "Total number of operations")
    if version is None or subgraphs is None or operators is None:
        raise ConversionError(f"cannot read what {PROGRAM} printed: {_beginning(printed)}")
    rows = tuple(
        OperatorRow(type=found[1], count=int(found[2]), status=found[3]) for found in _ROW.finditer(_table(printed))
    )
    return CompilerLog(
        version=version[1],
        subgraphs=subgraphs,
        operators=operators,
        on_chip_bytes=_bytes(printed, "On-chip memory used for caching model parameters"),
        off_chip_bytes=_bytes(printed, "Off-chip memory used for streaming uncached model parameters"),
        rows=rows,
    )


def _table(printed: str) -> str:
    """Return the lines below the table's head."""
    return re.split(r"^Operator\s+Count\s+Status\s*$", printed, maxsplit=1, flags=re.MULTILINE)[-1]


def _number(printed: str, what: str) -> int | None:
    found = re.search(rf"^{re.escape(what)}:\s*(\d+)\s*$", printed, re.MULTILINE)
    return int(found[1]) if found else None


def _bytes(printed: str, what: str) -> int:
    found = re.search(rf"^{re.escape(what)}:\s*([\d.]+)\s*(B|KiB|MiB|GiB)\s*$", printed, re.MULTILINE)
    if found is None:
        raise ConversionError(f"cannot read '{what}' in what {PROGRAM} printed")
    return round(float(found[1]) * _UNITS[found[2]])


def _failure(printed: str, returncode: int) -> ConversionError:
    version = _VERSION.search(printed)
    name = f"{PROGRAM} {version[1]}" if version else PROGRAM
    told = [line.strip() for line in _FAILURE.findall(printed)]
    missing = _MISSING_OPERATOR.search(printed)
    if told:
        operators = (missing[1] or missing[2],) if missing else ()
        return UnsupportedError(f"{name} cannot compile the model: {'; '.join(told[:2])}", operators)
    return ConversionError(f"{name} failed with exit code {returncode}: {_beginning(printed)}")


def _first_statuses(log: CompilerLog) -> str:
    return "; ".join(f"{row.count} × {row.type}: {row.status}" for row in log.rows[:3]) or "no table was printed"


def _beginning(printed: str) -> str:
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    return lines[0][:200] if lines else "nothing"
