"""An ONNX model with its inputs and outputs described, and its batch axis asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ipj_edge.protocols import Array, SourceRequest
from ipj_edge.values import TensorSpec
from ipj_edge_converters.onnx.files import set_dimension
from ipj_edge_converters.onnx.source.outputs import output_specs
from ipj_edge_converters.onnx.source.reference import OnnxEngine, OnnxReference
from ipj_edge_converters.onnx.source.shapes import describe_inputs
from ipj_edge_converters.onnx.source.tables import with_tables
from ipj_edge_converters.sources import batch_proof
from ipj_edge_converters.sources.batch_proof import BatchAnswer

# What sizes that a model leaves open are while it is asked, where no data say.
_OPEN = (16, 64, 224)


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """A model that can be run, with what it takes and makes.

    Attributes:
        inputs: Its inputs.
        outputs: Its outputs.
        reference: Runs it.
        only_size: Why it takes one size along its first axis only; empty where it takes any number of samples.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    reference: Any
    only_size: str = ""


def describe(model: Any, request: SourceRequest, engine: OnnxEngine, *, batched: bool = True) -> Described:
    """Describe a model by what its file says and what a run shows.

    Args:
        model: The model in plain form.
        request: What the user said.
        engine: Runs it.
        batched: False where the first axis is known to hold no samples.

    Raises:
        SourceError: it cannot be described or run.
        UnsupportedError: it needs operators that no engine has on its own; names them.
    """
    inputs = with_tables(model, describe_inputs(model, request.inputs))
    if not batched:
        inputs = batch_proof.without_batch(inputs)
    reference = OnnxReference(model, engine)
    outputs = output_specs(model, reference.run, inputs, request.examples)
    return Described(inputs=inputs, outputs=outputs, reference=reference)


def with_proven_batch(
    model: Any, described: Described, request: SourceRequest, engine: OnnxEngine, *, quantized: bool
) -> Described:
    """Keep the batch axis where the model shows that it holds samples; else fix its size, and say why.

    Raises:
        SourceError: the axis holds no samples, and nobody said which size it is to have.
    """
    named = batch_proof.batched_input(described.inputs)
    if named is None or named.batch_axis is None:
        return described
    size = named.shape[named.batch_axis]
    if isinstance(size, int):
        return _at_one_size(model, described, request, engine, size=size, quantized=quantized)
    asked = _ask(described, request, quantized)
    unbatched = all(spec.batch_axis is None for spec in described.outputs)
    wanted = batch_proof.wanted_size(request.inputs, named)
    # Each sample run by itself is what --max-batch 1 says; outputs that no sample has are looked at with the data.
    if not asked.reason or request.max_batch == 1 or (unbatched and wanted is None):
        return described
    if wanted is None:
        raise batch_proof.size_unknown(asked.reason, named)
    set_dimension(model, size, wanted)
    fixed = describe(model, request, engine, batched=False)
    return msgspec.structs.replace(fixed, only_size=asked.reason)


def _at_one_size(
    model: Any, described: Described, request: SourceRequest, engine: OnnxEngine, *, size: int, quantized: bool
) -> Described:
    """A file of one size cannot be asked at others: a single sample is looped, several must not see one another."""
    if size == 1:
        return described
    asked = batch_proof.ask_at(
        described.reference.run, described.inputs, described.outputs,
        size=size, quantized=quantized, given=request.examples,
    )  # fmt: skip
    if asked.ran and not asked.reason:
        return msgspec.structs.replace(described, only_size=batch_proof.runs_alone(size))
    fixed = describe(model, request, engine, batched=False)
    return msgspec.structs.replace(fixed, only_size=asked.reason or batch_proof.runs_alone(size))


def _ask(described: Described, request: SourceRequest, quantized: bool) -> BatchAnswer:
    """Ask at the first of a few choices for the other open sizes that the model runs at."""
    asked = BatchAnswer(ran=False)
    for size in _OPEN:
        closed = _closed(described.inputs, request.examples, size)
        asked = batch_proof.ask(
            described.reference.run, closed, described.outputs,
            largest=max(2, request.max_batch), quantized=quantized, given=request.examples,
        )  # fmt: skip
        if asked.ran or closed == described.inputs:
            break
    return asked


def _closed(inputs: Sequence[TensorSpec], given: Mapping[str, Array], size: int) -> tuple[TensorSpec, ...]:
    """Return inputs with a number for every open size but the batch: that of real data where there are any."""
    sizes: dict[str, int] = {}
    for spec in inputs:
        shape = given[spec.name].shape if spec.name in given else ()
        if len(shape) == len(spec.shape):
            sizes |= {name: real for name, real in zip(spec.shape, shape, strict=True) if isinstance(name, str)}
    return tuple(
        msgspec.structs.replace(
            spec,
            shape=tuple(
                sizes.get(each, size) if isinstance(each, str) and axis != spec.batch_axis else each
                for axis, each in enumerate(spec.shape)
            ),
        )
        for spec in inputs
    )
