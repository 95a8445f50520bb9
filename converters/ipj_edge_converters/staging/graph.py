"""A model's graph as the cutter sees it, whatever the format of its file."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """One operator of a graph.

    Attributes:
        name: Name for messages.
        reads: Tensors it reads, those that its inner graphs capture included; none is empty.
        makes: Tensors it makes.
        macs: Multiply-accumulates for one sample; None when there is no rule for this operator.
        repeatable: It only converts, clips, slices or pads values, row by row: cheaper to do again in a later stage
            than to hand over its result where that is larger, or where all it reads is handed over anyway.
        transposes: It reorders values, which costs as much as handing them over: done again only where its result
            could not be handed over.
        quantizes: It turns a floating-point tensor into a quantized one.
        reads_shape: It reads the shape of its input and none of its values.
    """

    name: str
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    macs: int | None = 0
    repeatable: bool = False
    transposes: bool = False
    quantizes: bool = False
    reads_shape: bool = False


class Tensor(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a tensor that depends on the inputs.

    Attributes:
        shape: Sizes, a dynamic one is its name; for messages.
        batched: It has the batch axis, so that rows can leave it.
        elements: Number of elements, for a batch that is the same for all tensors of a graph.
        bytes: Bytes they take.
        shape_known: Every size but that of the batch is fixed: its shape follows from any other tensor's batch.
    """

    shape: tuple[int | str, ...]
    batched: bool
    elements: int
    bytes: int
    shape_known: bool = False


class StageGraph(msgspec.Struct, frozen=True, kw_only=True):
    """A graph to cut.

    Attributes:
        operators: In topological order.
        inputs: Names of the model's inputs.
        tensors: Facts of every tensor that depends on the inputs.
    """

    operators: tuple[Operator, ...]
    inputs: tuple[str, ...]
    tensors: Mapping[str, Tensor]


class StagePlan(msgspec.Struct, frozen=True, kw_only=True):
    """One stage of a cut graph.

    Attributes:
        exit: The tensor this stage answers with.
        operators: Indices of its operators, in topological order; what is constant or repeated is in several stages.
        takes: Tensors it takes, inputs of the model first.
        adds: Tensors it adds: its exit, then what later stages take.
        shapes_of: Tensors of earlier stages of which it needs the shape only, and does not take.
        macs: Multiply-accumulates for one sample; None with a reason.
        macs_reason: Why macs is None.
    """

    exit: str
    operators: tuple[int, ...]
    takes: tuple[str, ...]
    adds: tuple[str, ...]
    shapes_of: tuple[str, ...]
    macs: int | None
    macs_reason: str = ""
