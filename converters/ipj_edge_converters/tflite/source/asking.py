"""A .tflite file run to find out what it answers, and whether its first axis holds samples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ipj_edge.errors import SourceError, UnsupportedError, first_line
from ipj_edge.protocols import Array, SourceRequest
from ipj_edge.values import TensorSpec
from ipj_edge_converters.sources import batch_proof
from ipj_edge_converters.sources.apart import SourceLimitError
from ipj_edge_converters.sources.batch_proof import SizedInputs
from ipj_edge_converters.sources.feeds import example_arrays
from ipj_edge_converters.tflite import file as tflite_file
from ipj_edge_converters.tflite.entry import TfliteEntry, read_entry, with_sizes
from ipj_edge_converters.tflite.operators import custom_operators
from ipj_edge_converters.tflite.source.reference import EngineRefusesError, Stateful, TfliteReference
from ipj_edge_converters.tflite.source.specs import batch_of, output_specs, to_real, to_stored
from ipj_edge_converters.tflite.state import read_state

_EDGETPU_OPERATOR = "edgetpu-custom-op"
# A file whose batch is open is asked at this many samples, of which it may see no other than the one it answers for.
_ASKED_AT = 5


def with_proven_batch(
    model: Any, inputs: tuple[TensorSpec, ...], request: SourceRequest, file: str, *, quantized: bool
) -> SizedInputs:
    """Keep the batch axis of a file's inputs where the file shows that it holds samples, else fix its size.

    Args:
        model: The parsed file.
        inputs: Its inputs.
        request: What the user said.
        file: Its name, for messages.
        quantized: It computes in integers.

    Raises:
        SourceError: the axis is open and holds no samples, and nobody said which size it is to have.
    """
    named = batch_proof.batched_input(inputs)
    size = None if named is None else named.shape[0]
    if named is None or size == 1 or (isinstance(size, str) and request.max_batch == 1):
        return SizedInputs(inputs=inputs)
    if isinstance(size, int):
        asked = _ask(model, inputs, request, file, size=size, quantized=quantized)
        proven = asked.ran and not asked.reason
        return SizedInputs(
            inputs=inputs if proven else batch_proof.without_batch(inputs),
            only_size=asked.reason or batch_proof.runs_alone(size),
        )
    asked = _ask(model, inputs, request, file, size=_ASKED_AT, quantized=quantized)
    if not asked.reason:
        return SizedInputs(inputs=inputs)
    wanted = batch_proof.wanted_size(request.inputs, named)
    if wanted is None:
        raise batch_proof.size_unknown(asked.reason, named)
    return SizedInputs(inputs=batch_proof.without_batch(_with_batch(inputs, wanted)), only_size=asked.reason)


def _ask(
    model: Any, inputs: tuple[TensorSpec, ...], request: SourceRequest, file: str, *, size: int, quantized: bool
) -> batch_proof.BatchAnswer:
    fixed = _with_batch(inputs, size)
    model = tflite_file.parse(tflite_file.pack(model))
    with_sizes(model, {spec.name: static_sizes(spec) for spec in fixed})
    written = request.workdir / "asked.tflite"
    written.write_bytes(tflite_file.pack(model))
    entry = read_entry(model)
    try:
        reference = open_reference(model, written, file)
        outputs = output_specs(entry, fixed, probe(entry, fixed, reference))
    except SourceLimitError:
        raise
    except SourceError:
        return batch_proof.BatchAnswer(ran=False)

    def run(arrays: Sequence[Array]) -> list[Array]:
        stored = [to_stored(tensor, array) for tensor, array in zip(entry.inputs, arrays, strict=True)]
        made = reference.run(
            stored, step=size, batched=[False] * len(entry.inputs), joined=[False] * len(entry.outputs)
        )
        return [to_real(tensor, answer) for tensor, answer in zip(entry.outputs, made, strict=True)]

    return batch_proof.ask_at(run, fixed, outputs, size=size, quantized=quantized, given=request.examples)


def _with_batch(inputs: Sequence[TensorSpec], size: int) -> tuple[TensorSpec, ...]:
    return tuple(
        msgspec.structs.replace(
            spec, shape=tuple(size if axis == spec.batch_axis else each for axis, each in enumerate(spec.shape))
        )
        for spec in inputs
    )


def static_sizes(spec: TensorSpec) -> tuple[int, ...]:
    """Return the sizes to run with; an open batch is one sample."""
    return tuple(1 if isinstance(size, str) else size for size in spec.shape)


def open_reference(model: Any, path: Path, file: str) -> TfliteReference:
    """Open a file in a process of its own.

    Raises:
        UnsupportedError: it needs operators that the engine does not have; names them.
        SourceError: the engine refuses it for another reason.
    """
    kinds = {tensor.kind for tensor in read_state(model)}
    stateful: Stateful = "resource" if "resource" in kinds else "variable" if kinds else ""
    try:
        return TfliteReference(path, stateful, file)
    except EngineRefusesError as error:
        custom = custom_operators(model)
        if custom:
            raise UnsupportedError(_custom_text(file, custom), custom) from error
        raise SourceError(f"{file} cannot be loaded by ai-edge-litert: {first_line(error)}") from error


def _custom_text(file: str, custom: tuple[str, ...]) -> str:
    if _EDGETPU_OPERATOR in custom:
        return (
            f"{file} is compiled for the Edge TPU already ('{_EDGETPU_OPERATOR}'), and cannot be proven anywhere "
            "else: give the .tflite file it was compiled from"
        )
    return f"{file} needs custom operators that ai-edge-litert does not have: {', '.join(custom)}"


def probe(entry: TfliteEntry, inputs: tuple[TensorSpec, ...], reference: TfliteReference) -> list[Any]:
    """Return what the engine answers to one batch of examples, as the file stores it."""
    examples = example_arrays(inputs, batch_of(entry))
    stored = [to_stored(tensor, array) for tensor, array in zip(entry.inputs, examples, strict=True)]
    batched = [spec.batch_axis is not None for spec in inputs]
    return reference.run(stored, step=batch_of(entry), batched=batched, joined=[False] * len(entry.outputs))
