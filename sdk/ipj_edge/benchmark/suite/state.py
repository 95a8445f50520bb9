"""What of a suite is measured, on disk: one file a cell and round, there as a whole or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import numpy as np

from ipj_edge.benchmark.result.latencies import Latencies
from ipj_edge.benchmark.run.runner import Case
from ipj_edge.benchmark.suite.file import Cell, Suite
from ipj_edge.bundles.bundle import open_bundle
from ipj_edge.errors import DestinationError
from ipj_edge.writing import write_file

_MARK = "fingerprint"


class _SavedLatencies(msgspec.Struct, frozen=True, kw_only=True):
    kept: bytes
    count: int
    stride: int
    total_s: float
    least_s: float
    most_s: float


class SuiteState:
    """The folder that holds the finished cells of a suite."""

    def __init__(self, folder: Path, suite: Suite) -> None:
        self._folder, self._suite = folder, suite

    def open(self, *, force: bool) -> None:
        """Make the folder, or go on with the one that is there.

        Raises:
            DestinationError: it holds cells of another suite, of other bundles or other data.
        """
        mark = self._folder / _MARK
        if self._folder.exists() and not mark.exists() and not any(self._folder.iterdir()):
            self._folder.rmdir()  # a run was killed before it had put its mark there
        if self._folder.exists() and not self._is_ours(mark):
            if not force:
                raise DestinationError(
                    f"{self._folder} holds cells of another suite, or its bundles or data changed: give --force to "
                    "measure all of them anew"
                )
            shutil.rmtree(self._folder)
        try:
            self._folder.mkdir(exist_ok=True)
        except OSError as error:
            raise DestinationError(f"cannot write {self._folder}: {error.strerror}") from error
        write_file(mark, self._suite.fingerprint.encode())

    def _is_ours(self, mark: Path) -> bool:
        try:
            return mark.read_text() == self._suite.fingerprint
        except (OSError, UnicodeDecodeError):
            return False

    def rounds(self, cell: Cell) -> int:
        """Return how many rounds of a cell are there, from the first on without a gap."""
        count = 0
        while self._file(cell, count).exists():
            count += 1
        return count

    def save(self, cell: Cell, number: int, case: Case) -> None:
        """Write a round of a cell."""
        write_file(self._file(cell, number), msgspec.msgpack.encode(case, enc_hook=_plain))

    def load(self, cell: Cell, number: int) -> Case:
        """Read a round of a cell; its bundle is opened and checked again."""
        case = msgspec.msgpack.decode(self._file(cell, number).read_bytes(), type=Case, dec_hook=_restored)
        loaded = msgspec.structs.replace(case.loaded, bundle=open_bundle(cell.path))
        return msgspec.structs.replace(case, loaded=loaded)

    def remove(self) -> None:
        """Remove the folder once the result is written."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _file(self, cell: Cell, number: int) -> Path:
        return self._folder / f"{self._suite.cells.index(cell):04}-{number:03}.msgpack"


def _plain(value: object) -> object:
    """Return what msgpack can hold of the members of a `Case` that are no plain data."""
    if isinstance(value, Latencies):
        return _SavedLatencies(
            kept=value.kept.tobytes(),
            count=value.count,
            stride=value.stride,
            total_s=value.total_s,
            least_s=value.least_s,
            most_s=value.most_s,
        )
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(f"a {type(value).__name__} cannot be kept")


def _restored(kind: type, plain: object) -> object:
    if kind is not Latencies:
        return Path(str(plain))
    own = msgspec.convert(plain, _SavedLatencies)
    return Latencies.restored(
        np.frombuffer(own.kept),
        count=own.count,
        stride=own.stride,
        total_s=own.total_s,
        ends_s=(own.least_s, own.most_s),
    )
