"""The pt2 source: a ``.pt2`` file that ``torch.export.save`` wrote.

A ``.pt2`` is trusted input, as a factory is: torch reads parts of it with pickle, which can run any code. Open
only files whose maker you trust. Other pickles (``.pt``, ``.pth``, ``.pkl``, ``.bin``) are never opened.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ipj_edge.errors import SourceError, typed_line
from ipj_edge.plugins import needs
from ipj_edge.protocols import SourceOpener, SourceRequest
from ipj_edge.values import TensorSpec
from ipj_edge_converters.quiet import quiet
from ipj_edge_converters.sources.described import merge_described, open_sizes
from ipj_edge_converters.sources.origin import Origin
from ipj_edge_converters.torch.outputs import by_position, output_names
from ipj_edge_converters.torch.program import Program
from ipj_edge_converters.torch.pt2_inputs import arrangement, check_batch_range, check_program, program_inputs
from ipj_edge_converters.torch.source import TorchSource, torch_outputs, try_module
from ipj_edge_converters.torch.tables import with_tables

_PICKLES = (".pt", ".pth", ".th", ".pkl", ".pickle", ".ckpt", ".bin", ".tar")


class Pt2Opener:
    """Opens ``.pt2`` programs, which are trusted input, and refuses other pickles with what to do."""

    name = "pt2"

    def accepts(self, location: str) -> bool:
        """Say whether a location ends in ``.pt2``, or like a pickle that is to be refused."""
        return location.endswith((".pt2", *_PICKLES))

    def open(self, request: SourceRequest) -> TorchSource:
        """Load the program, describe its inputs and try it.

        Raises:
            SourceError: missing, corrupt, no program but another pickle, or not as described.
            UnsupportedError: the program is already quantized.
        """
        path = Path(request.location)
        exported = _load(path)
        check_program(exported)
        inputs = with_tables(exported, merge_described(program_inputs(exported), request.inputs))
        _refuse_open_sizes(inputs)
        dynamic = any(isinstance(size, str) for spec in inputs for size in spec.shape)
        largest = check_batch_range(exported, request.max_batch) if dynamic else request.max_batch
        module = by_position(exported.module(), arrangement(exported))
        names = output_names(try_module(module, inputs, 2 if dynamic else None), request.output_names)
        return TorchSource(
            Origin(kind=self.name, name=path.stem, file=path.name, sha256=_sha256(path)),
            module,
            Program(exported=exported, dynamic=dynamic, reason="" if dynamic else "the program was exported so"),
            inputs,
            torch_outputs(module, names, inputs, dynamic=dynamic),
            workdir=request.workdir,
            max_batch=largest,
        )


def _refuse_open_sizes(inputs: Sequence[TensorSpec]) -> None:
    for spec in inputs:
        if axes := open_sizes(spec):
            shape = "x".join("SIZE" if isinstance(size, str) else str(size) for size in spec.shape)
            raise SourceError(
                f"input '{spec.name}' leaves the size of axis {axes[0]} open: add --input {spec.name}:{shape}"
            )


def _load(path: Path) -> Any:
    if path.suffix != ".pt2":
        raise SourceError(
            f"'{path.name}' is a pickle, which could run any code, and is not opened as a model: name a factory "
            f"(model.py:build) and pass the file with --weights, or save a program with torch.export.save"
        )
    if not path.is_file():
        raise SourceError(f"no file '{path}'")
    if not zipfile.is_zipfile(path):
        raise SourceError(f"'{path.name}' is not a .pt2 program, or is cut short: export it again")
    with needs("convert"):
        import torch
    try:
        with quiet("torch.export"):
            return torch.export.load(path)
    except Exception as error:
        raise SourceError(
            f"'{path.name}' cannot be read as a .pt2 program by torch {torch.__version__}: {typed_line(error)}"
        ) from error


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


_: type[SourceOpener] = Pt2Opener
