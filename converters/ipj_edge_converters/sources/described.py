"""What a user said about the inputs of a source that already knows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from ipj_edge.errors import SourceError
from ipj_edge.values import TensorSpec
from ipj_edge_converters.sources.feeds import shape_text


def merge_described(own: Sequence[TensorSpec], described: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """Add to the source's own inputs what a user described: layout, value range, sizes that it leaves open.

    The batch stays as the source has it. A description without a batch axis is believed.

    Raises:
        SourceError: a name is not an input's, or a description contradicts the source.
    """
    names = [spec.name for spec in own]
    unknown = [spec.name for spec in described if spec.name not in names]
    if unknown:
        raise SourceError(f"the model has no input {', '.join(unknown)}; its inputs are {', '.join(names)}")
    by_name = {spec.name: spec for spec in described}
    return tuple(_merged(spec, by_name[spec.name]) if spec.name in by_name else spec for spec in own)


def with_table_ranges(inputs: Sequence[TensorSpec], rows: Mapping[str, int]) -> tuple[TensorSpec, ...]:
    """Give integer inputs the indices of the table they look up in, where nobody described another range.

    Args:
        inputs: The inputs.
        rows: Rows of the smallest table, by the name of the input that indexes it.
    """
    return tuple(
        msgspec.structs.replace(spec, value_range=(0.0, float(rows[spec.name] - 1)))
        if spec.name in rows and spec.value_range is None and np.dtype(spec.dtype).kind in "iu"
        else spec
        for spec in inputs
    )


def check_has_inputs(names: Sequence[str], file: str) -> None:
    """Refuse a model that takes nothing.

    Raises:
        SourceError: it has no inputs.
    """
    if not names:
        raise SourceError(
            f"'{file}' has no inputs: it answers the same every time, so there is nothing to run on a device; "
            "store its answer instead"
        )


def open_sizes(spec: TensorSpec) -> list[int]:
    """Return the axes, other than the batch, whose size a source leaves open."""
    return [axis for axis, size in enumerate(spec.shape) if isinstance(size, str) and axis != spec.batch_axis]


def batch_where_it_is(described: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """Return inputs as a user described them, without a batch axis where axis 0 is no batch.

    Axis 0 of the first input that has one is the batch; an input of another size there, such as the state of several
    layers, has none.
    """
    batch = next((spec.shape[0] for spec in described if spec.batch_axis == 0), None)
    return tuple(
        msgspec.structs.replace(spec, batch_axis=None) if spec.batch_axis == 0 and spec.shape[0] != batch else spec
        for spec in described
    )


def samples_elsewhere(specs: Sequence[TensorSpec]) -> str:
    """Say which tensor has its samples on another axis than the first; empty when none has.

    A recurrent state of shape (layers, batch, features) is one. Data, and parts of a batch, are cut along the first
    axis everywhere, so such a model is run one sample at a time, and its state belongs to that sample.
    """
    found = next((spec for spec in specs if spec.batch_axis not in (None, 0)), None)
    return "" if found is None else f"'{found.name}' has its samples on axis {found.batch_axis}"


def _merged(own: TensorSpec, said: TensorSpec) -> TensorSpec:
    agrees = len(own.shape) == len(said.shape) and all(
        isinstance(size, str) or size == wanted for size, wanted in zip(own.shape, said.shape, strict=True)
    )
    if not agrees:
        raise SourceError(
            f"input '{own.name}' is {shape_text(own.shape)} in the model; {shape_text(said.shape)} was described"
        )
    if own.dtype != said.dtype:
        raise SourceError(f"input '{own.name}' is {own.dtype} in the model; {said.dtype} was described")
    fixed = open_sizes(own)
    return msgspec.structs.replace(
        own,
        shape=tuple(said.shape[axis] if axis in fixed else size for axis, size in enumerate(own.shape)),
        layout=said.layout,
        value_range=said.value_range,
        batch_axis=None if said.batch_axis is None else own.batch_axis,
    )
