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

import msgspec

from ipj_edge.errors import SourceError, typed_line
from ipj_edge.plugins import needs
from ipj_edge.protocols import SourceOpener, SourceRequest
from ipj_edge.values import TensorSpec
from ipj_edge_converters.quiet import quiet
from ipj_edge_converters.sources.batch_proof import (
    BatchAnswer,
    SizedInputs,
    batched_input,
    size_unknown,
    wanted_size,
    without_batch,
)
from ipj_edge_converters.sources.described import check_has_inputs, merge_described, open_sizes
from ipj_edge_converters.sources.origin import Origin
from ipj_edge_converters.torch.batch import ask_module, at_one_size, buffers_notes, check_repeats, unchanged
from ipj_edge_converters.torch.outputs import by_position, output_names
from ipj_edge_converters.torch.program import Program, export_program, with_open_sizes
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
        check_has_inputs(exported.graph_signature.user_inputs, path.name)
        inputs = with_tables(exported, merge_described(program_inputs(exported), request.inputs))
        _refuse_open_sizes(inputs)
        dynamic = any(isinstance(size, str) for spec in inputs for size in spec.shape)
        largest = check_batch_range(exported, request.max_batch) if dynamic else request.max_batch
        module = by_position(exported.module(), arrangement(exported))
        with unchanged(module) as changed:
            answer, first = try_module(module, inputs, 2 if dynamic else None)
        check_repeats(answer, first, changed)
        names = output_names(answer, request.output_names)
        sized = _sized(module, names, inputs, request, largest=largest)
        program = Program(exported=exported, dynamic=dynamic, reason="" if dynamic else "the program was exported so")
        if dynamic and batched_input(sized.inputs) is None:
            program, dynamic = export_program(module, sized.inputs, largest), False
        return TorchSource(
            Origin(kind=self.name, name=path.stem, file=path.name, sha256=_sha256(path)),
            module,
            program,
            msgspec.structs.replace(sized, notes=buffers_notes(changed, sized)),
            with_open_sizes(
                program.exported,
                torch_outputs(module, names, sized.inputs, dynamic=dynamic, given=request.examples),
            ),
            workdir=request.workdir,
            max_batch=largest,
        )


def _sized(
    module: Any, names: Sequence[str], inputs: tuple[TensorSpec, ...], request: SourceRequest, *, largest: int
) -> SizedInputs:
    """Return the inputs with a batch axis where the program shows that it holds samples, else with a fixed size.

    Raises:
        SourceError: the axis is open and holds no samples, and nobody said which size it is to have.
    """
    named = batched_input(inputs)
    if named is None or named.batch_axis is None:
        return SizedInputs(inputs=inputs)
    size = named.shape[named.batch_axis]
    if isinstance(size, int):
        return at_one_size(module, names, inputs, size, request.examples)
    asked = ask_module(module, names, inputs, largest, request.examples) if largest > 1 else BatchAnswer(ran=False)
    if not asked.reason or request.max_batch == 1:
        return SizedInputs(inputs=inputs)
    wanted = wanted_size(request.inputs, named)
    if wanted is None:
        raise size_unknown(asked.reason, named)
    fixed = tuple(
        msgspec.structs.replace(spec, shape=tuple(wanted if each == size else each for each in spec.shape))
        for spec in without_batch(inputs)
    )
    return SizedInputs(inputs=fixed, only_size=asked.reason)


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
