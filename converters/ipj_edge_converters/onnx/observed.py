"""Sizes and dtypes of every tensor of an ONNX model, observed by running it at two batch sizes.

Shape inference gives up at computed shapes; a run does not. A tensor has the batch axis when exactly one of its
sizes follows the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from ipj_edge.errors import ConversionError, typed_line
from ipj_edge.plugins import needs
from ipj_edge.protocols import Array
from ipj_edge.values import TensorSpec
from ipj_edge_converters.onnx.runtime import plain_session

# The batch sizes of the two runs, and what other dynamic sizes are in them and in a third run.
_BATCHES = (2, 3)
_OTHER, _OTHER_AGAIN = 64, 96

Sizes = dict[str, tuple[int, ...]]


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of one tensor.

    Attributes:
        shape: Sizes, a dynamic one is its name.
        dtype: numpy name of the dtype.
        batch_axis: Axis of the samples; None when there is none.
        elements: Number of elements in the first run.
    """

    shape: tuple[int | str, ...]
    dtype: str
    batch_axis: int | None
    elements: int


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of a model.

    Attributes:
        tensors: All tensors that nodes of the main graph make, and the inputs.
        runs: Sizes of the same tensors in each run; the second has one sample more than the first.
        samples: Samples by which the work of the last run differs from that of the first, or of the only one.
        open_sizes: Names of dynamic sizes besides the batch.
    """

    tensors: Mapping[str, Observed]
    runs: tuple[Sizes, ...]
    samples: int
    open_sizes: tuple[str, ...]


def observe(model: Any, inputs: Sequence[TensorSpec]) -> Observation:
    """Run a model on zeros and return the sizes of its tensors.

    Args:
        model: An ONNX model, weights inline.
        inputs: Its inputs as the source describes them.

    Raises:
        UnsupportedError: onnxruntime has no kernel for an operator; names it.
        ConversionError: onnxruntime cannot run the model.
    """
    session = _session(model)
    named = [spec.shape[spec.batch_axis] for spec in inputs if spec.batch_axis is not None]
    batch = next((size for size in named if isinstance(size, str)), None)
    others = sorted({size for spec in inputs for size in spec.shape if isinstance(size, str) and size != batch})
    batches = _BATCHES if batch is not None else (0,)
    runs = [_run(session, inputs, {batch or "": size, **dict.fromkeys(others, _OTHER)}) for size in batches]
    again = _run(session, inputs, {batch or "": batches[0], **dict.fromkeys(others, _OTHER_AGAIN)}) if others else None
    fixed = next((size for size in named if isinstance(size, int)), 1)
    tensors = {
        name: _observed(name, [run[name] for run in runs], None if again is None else again[name], batch or fixed)
        for name in runs[0]
    }
    sizes = tuple({name: array.shape for name, array in run.items()} for run in runs)
    return Observation(tensors=tensors, runs=sizes, samples=1 if batch is not None else fixed, open_sizes=tuple(others))


def _session(model: Any) -> Any:
    with needs("convert"):
        import onnx
    seen = onnx.ModelProto()
    seen.CopyFrom(model)
    outputs = {value.name for value in seen.graph.output}
    made = (name for node in seen.graph.node for name in node.output if name and name not in outputs)
    seen.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in made)
    return plain_session(seen.SerializeToString(), model.graph.name)


def _run(session: Any, inputs: Sequence[TensorSpec], sizes: Mapping[str, int]) -> dict[str, Array]:
    feeds = {
        spec.name: np.zeros([size if isinstance(size, int) else sizes[size] for size in spec.shape], spec.dtype)
        for spec in inputs
    }
    names = [output.name for output in session.get_outputs()]
    try:
        answers = session.run(names, feeds)
    except Exception as error:
        shown = ", ".join(f"{name} = {array.shape}" for name, array in feeds.items())
        raise ConversionError(f"the model that is to be cut does not run on {shown}: {typed_line(error)}") from error
    made = {name: array for name, array in zip(names, answers, strict=True) if isinstance(array, np.ndarray)}
    return {**feeds, **made}


def _observed(name: str, runs: Sequence[Array], again: Array | None, batch: str | int) -> Observed:
    first = runs[0]
    axis = _batch_axis([array.shape for array in runs], batch)
    shape: list[int | str] = list(first.shape)
    for place in _changed([array.shape for array in runs]):
        shape[place] = f"{name}_{place}"
    if again is not None:
        for place in _changed([first.shape, again.shape]):
            shape[place] = f"{name}_{place}"
    if axis is not None:
        shape[axis] = batch
    return Observed(shape=tuple(shape), dtype=first.dtype.name, batch_axis=axis, elements=first.size)


def _batch_axis(shapes: Sequence[tuple[int, ...]], batch: str | int) -> int | None:
    """Find the one size that follows the batch; where the batch is fixed, the first axis when it has that size."""
    if isinstance(batch, int):
        return 0 if shapes[0] and shapes[0][0] == batch else None
    changed = _changed(shapes)
    if len(changed) == 1 and tuple(shape[changed[0]] for shape in shapes) == _BATCHES:
        return changed[0]
    return None


def _changed(shapes: Iterable[tuple[int, ...]]) -> list[int]:
    """Return the axes whose sizes differ; where ranks differ there is nothing to compare."""
    first, *others = shapes
    if any(len(shape) != len(first) for shape in others):
        return []
    return [axis for axis, size in enumerate(first) if any(shape[axis] != size for shape in others)]
