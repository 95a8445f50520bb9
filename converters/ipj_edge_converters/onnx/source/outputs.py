"""Outputs of an ONNX model as specs: seen by running it, or inferred where that takes more facts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ipj_edge.errors import SourceError
from ipj_edge.plugins import needs
from ipj_edge.protocols import Array
from ipj_edge.values import TensorSpec
from ipj_edge_converters.onnx.source.shapes import array_dtype, batch_axis
from ipj_edge_converters.onnx.source.value_shapes import deciding_inputs
from ipj_edge_converters.sources.apart import SourceLimitError
from ipj_edge_converters.sources.feeds import example_arrays

Runner = Callable[[Sequence[Array]], list[Array]]
OpenShape = tuple[int | str, ...]


def output_specs(
    model: Any, run: Runner, inputs: Sequence[TensorSpec], given: Mapping[str, Array]
) -> tuple[TensorSpec, ...]:
    """Describe a model's outputs; a size that hangs on the values in an input is left open.

    Args:
        model: The model.
        run: Runs it.
        inputs: Its inputs.
        given: Real inputs by name, as far as there are any.

    Raises:
        SourceError: an output is no tensor, or its shape is neither stated nor to be found by running the model.
    """
    batch = next((spec.shape[spec.batch_axis] for spec in inputs if spec.batch_axis is not None), None)
    seen, inferred = _seen(run, inputs, batch, given), _inferred_outputs(model)
    if seen is None:
        pairs = zip(inferred, model.graph.output, strict=True)
        shapes = [_either(new, old, batch) for new, old in pairs]
    else:
        loose = deciding_inputs(model)
        shapes = [
            _loosened(shape, value) if value.name in loose else shape
            for shape, value in zip(seen, inferred, strict=True)
        ]
    return tuple(_spec(value, shape, batch) for value, shape in zip(model.graph.output, shapes, strict=True))


def batch_is_frozen(run: Runner, inputs: Sequence[TensorSpec], given: Mapping[str, Array]) -> bool:
    """Say whether a model that declares a dynamic batch runs at 1 and fails at 2, e.g. on a frozen Reshape."""
    return _trial(run, inputs, 1, given) is not None and _trial(run, inputs, 2, given) is None


def _seen(
    run: Runner, inputs: Sequence[TensorSpec], batch: int | str | None, given: Mapping[str, Array]
) -> list[OpenShape] | None:
    """Return shapes seen in a run, the batch's name where a size follows it; None when there can be no run."""
    if not isinstance(batch, str):
        shapes = _trial(run, inputs, None, given)
        return None if shapes is None else list(shapes)
    at_two, at_three = (_trial(run, inputs, size, given) for size in (2, 3))
    if at_two is None or at_three is None:
        return None
    return [_merged(two, three, batch) for two, three in zip(at_two, at_three, strict=True)]


def _merged(two: tuple[int, ...], three: tuple[int, ...], batch: str) -> OpenShape:
    sizes = enumerate(zip(two, three, strict=True))
    return tuple(a if a == b else batch if (a, b) == (2, 3) else f"dim{axis}" for axis, (a, b) in sizes)


def _trial(
    run: Runner, inputs: Sequence[TensorSpec], batch: int | None, given: Mapping[str, Array]
) -> list[tuple[int, ...]] | None:
    sizes = (size for spec in inputs for axis, size in enumerate(spec.shape) if axis != spec.batch_axis)
    if any(isinstance(size, str) for size in sizes):
        return None
    try:
        return [answer.shape for answer in run(example_arrays(inputs, batch, given=given))]
    except SourceLimitError:
        raise
    except SourceError:
        return None


def _loosened(seen: OpenShape, inferred: Any) -> OpenShape:
    """Leave open what was seen once but does not follow from the inputs: how many boxes there are, for example."""
    sizes = inferred.type.tensor_type.shape.dim
    known = {axis for axis, size in enumerate(sizes) if size.dim_value > 0}
    return tuple(
        size if axis in known or isinstance(size, str) else f"{_axis_name(inferred.name)}_dim{axis}"
        for axis, size in enumerate(seen)
    )


def _axis_name(tensor: str) -> str:
    return re.sub(r"\W", "_", tensor)


def _inferred_outputs(model: Any) -> list[Any]:
    """Return the outputs with the shapes that follow from the inputs, none where none does."""
    with needs("convert"):
        import onnx
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    for value in bare.graph.output:
        value.type.tensor_type.ClearField("shape")
    return list(onnx.shape_inference.infer_shapes(bare).graph.output)


def _either(inferred: Any, declared: Any, batch: int | str | None) -> OpenShape:
    """Return the inferred shape, else the declared one; a size on axis 0 that nothing names is the batch."""
    for value in (inferred, declared):
        tensor = value.type.tensor_type
        if tensor.HasField("shape"):
            names = [batch or "dim0", *(f"dim{axis}" for axis in range(1, len(tensor.shape.dim)))]
            return tuple(_size(size, name) for size, name in zip(tensor.shape.dim, names, strict=False))
    raise SourceError(f"output '{declared.name}' does not state its shape: describe the inputs' sizes with --input")


def _size(size: Any, name: int | str) -> int | str:
    """Return a size's number or its own name, else this name."""
    if size.dim_value > 0:
        return int(size.dim_value)
    return str(size.dim_param) if str(size.dim_param).isidentifier() else name


def _spec(value: Any, shape: OpenShape, batch: int | str | None) -> TensorSpec:
    return TensorSpec(name=value.name, shape=shape, dtype=array_dtype(value), batch_axis=batch_axis(shape, batch))
