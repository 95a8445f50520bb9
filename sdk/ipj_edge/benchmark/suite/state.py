"""What of a suite is measured, on disk: one file a cell and round, there as a whole or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import numpy as np

from ipj_edge.benchmark.result.latencies import Latencies
from ipj_edge.benchmark.result.schema import EarlyExit
from ipj_edge.benchmark.result.trace import PowerTrace
from ipj_edge.benchmark.run.entries import Loaded
from ipj_edge.benchmark.run.measured import Measured, StoppedBy, Warmth, Window
from ipj_edge.benchmark.run.quality import Quality
from ipj_edge.benchmark.run.runner import Case
from ipj_edge.benchmark.suite.file import Cell, Suite
from ipj_edge.bundles.bundle import open_bundle
from ipj_edge.errors import DestinationError
from ipj_edge.values import EffectiveSettings, Reading, Settings
from ipj_edge.writing import write_file

_MARK = "fingerprint"


class _SavedLatencies(msgspec.Struct, frozen=True, kw_only=True):
    kept: bytes
    count: int
    stride: int
    total_s: float
    least_s: float
    most_s: float


class _Saved(msgspec.Struct, frozen=True, kw_only=True):
    """A `Case` without its bundle, which lies on disk anyway."""

    requested: Settings
    effective: tuple[EffectiveSettings, ...]
    load_s: float
    first_s: float
    quality: Quality
    data_sha256: str
    different: int
    early_exit: EarlyExit
    notes: tuple[str, ...]
    windows: tuple[Window, ...]
    idle: tuple[Reading, ...]
    samples_per_query: int
    warmth: Warmth
    stopped_by: StoppedBy
    trace: PowerTrace | None
    exit_counts: tuple[int, ...]
    latencies: _SavedLatencies


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
        loaded, measured = case.loaded, case.measured
        own = measured.latencies
        saved = _Saved(
            **{name: getattr(loaded, name) for name in Loaded.__struct_fields__ if name != "bundle"},
            **{name: getattr(measured, name) for name in Measured.__struct_fields__ if name != "latencies"},
            latencies=_SavedLatencies(
                kept=own.kept.tobytes(),
                count=own.count,
                stride=own.stride,
                total_s=own.total_s,
                least_s=own.least_s,
                most_s=own.most_s,
            ),
        )
        write_file(self._file(cell, number), msgspec.msgpack.encode(saved))

    def load(self, cell: Cell, number: int) -> Case:
        """Read a round of a cell."""
        saved = msgspec.msgpack.decode(self._file(cell, number).read_bytes(), type=_Saved)
        own = saved.latencies
        latencies = Latencies.restored(
            np.frombuffer(own.kept),
            count=own.count,
            stride=own.stride,
            total_s=own.total_s,
            ends_s=(own.least_s, own.most_s),
        )
        measured = {name: getattr(saved, name) for name in Measured.__struct_fields__ if name != "latencies"}
        loaded = {name: getattr(saved, name) for name in Loaded.__struct_fields__ if name != "bundle"}
        return Case(
            loaded=Loaded(bundle=open_bundle(cell.path), **loaded),
            scenario=cell.scenario,
            measured=Measured(**measured, latencies=latencies),
        )

    def remove(self) -> None:
        """Remove the folder once the result is written."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _file(self, cell: Cell, number: int) -> Path:
        return self._folder / f"{self._suite.cells.index(cell):04}-{number:03}.msgpack"
