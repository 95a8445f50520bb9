"""The source plugin for a finished run: ``ipj-edge convert run …`` opens its program and its trained ranges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ipj_edge.errors import SourceError
from ipj_edge.plugins import load_source_opener
from ipj_edge.protocols import RangedSource, Source, SourceOpener, SourceRequest, StagedSource
from ipj_edge.values import TrainedRanges

# The names that `delivery` writes; importing it would import torch.
_PROGRAM = "model.pt2"
_RANGES = "quantization.json"
_FIRST_STAGE = "stage_1.pt2"


class _Written(msgspec.Struct, frozen=True):
    """What is read of ``quantization.json``."""

    ranges: TrainedRanges


class RunSource:
    """A program with the ranges that were trained for it; everything else is the program's own.

    Attributes:
        ranges: Trained ranges; None where nothing was trained for int8.
        exits: Outputs of a network with exits, which is then cut into stages; empty for a plain one.
    """

    def __init__(self, program: Source, name: str, ranges: TrainedRanges | None, *, staged: bool) -> None:
        self._program = program
        self.name, self.ranges = name, ranges
        self.exits = tuple(spec.name for spec in program.outputs) if staged else ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)


class RunOpener:
    """Opens the folder of a finished run; its program is trusted input, as every ``.pt2`` is."""

    name = "run"

    def accepts(self, location: str) -> bool:
        """Say whether a location is a folder with a program of ours in it."""
        return (Path(location) / _PROGRAM).is_file()

    def open(self, request: SourceRequest) -> Source:
        """Open the program, and its ranges where there are any.

        Raises:
            SourceError: the program or ``quantization.json`` is damaged.
        """
        folder = Path(request.location)
        program = load_source_opener("pt2").open(msgspec.structs.replace(request, location=str(folder / _PROGRAM)))
        opened: Any = RunSource(
            program, folder.resolve().name, _ranges(folder / _RANGES), staged=(folder / _FIRST_STAGE).is_file()
        )
        return opened


def _ranges(path: Path) -> TrainedRanges | None:
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Written).ranges
    except (OSError, msgspec.MsgspecError) as error:
        raise SourceError(f"{path} cannot be read: {error}") from error


_: type[SourceOpener] = RunOpener
_staged: type[StagedSource] = RunSource
_ranged: type[RangedSource] = RunSource
