"""Bring an ONNX model into the plain form that every engine and converter here takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipj_edge.errors import SourceError
from ipj_edge.plugins import needs
from ipj_edge.values import TensorSpec
from ipj_edge_converters.onnx.files import strip_metadata
from ipj_edge_converters.onnx.graphs import nodes_of

_MOST_NODES = 1_000_000
_FIRST_IR_WITH_PLAIN_INITIALIZERS = 4


def clean(model: Any, name: str) -> Any:
    """Return the model without metadata, local functions inlined, its graph named, weights off its inputs.

    Raises:
        SourceError: a local function calls itself, or the functions come to too many nodes.
    """
    with needs("convert"):
        from onnx import inliner
    if model.functions:
        _check_functions(model)
        model = inliner.inline_local_functions(model)
    strip_metadata(model)
    if not model.graph.name:
        model.graph.name = name
    _drop_initializers_from_inputs(model)
    return model


def _check_functions(model: Any) -> None:
    """Refuse functions that would never end to be inlined, or fill the memory: few that call each other are enough."""
    functions = {(each.domain, each.name, each.overload): each for each in model.functions}
    sizes: dict[tuple[str, str, str], int] = {}

    def size(part: Any, callers: tuple[tuple[str, str, str], ...]) -> int:
        total = 0
        for node in nodes_of(part):
            called = (node.domain, node.op_type, node.overload)
            if called in callers:
                raise SourceError(f"the local function '{node.op_type}' calls itself: nothing can run it")
            if called in functions and called not in sizes:
                sizes[called] = size(functions[called], (*callers, called))
            total += sizes.get(called, 1)
        return total

    nodes = size(model.graph, ())
    if nodes > _MOST_NODES:
        raise SourceError(f"its local functions come to {nodes} nodes; {_MOST_NODES} are the most that are read")


def rename_outputs(model: Any, names: Sequence[str]) -> None:
    """Give the outputs new names, in order; no names keeps the model's own.

    Raises:
        SourceError: too few or too many names, or names that are taken.
    """
    own = [value.name for value in model.graph.output]
    if not names or list(names) == own:
        return
    if len(names) != len(own):
        raise SourceError(f"the model has {len(own)} outputs ({', '.join(own)}); {len(names)} names were given")
    taken = {tensor for node in model.graph.node for tensor in (*node.input, *node.output)}
    clash = [name for name in names if name in taken - set(own) or list(names).count(name) > 1]
    if clash:
        raise SourceError(f"the output name {', '.join(clash)} is taken inside the model: choose another")
    swapped = [name for old, name in zip(own, names, strict=True) if name in own and name != old]
    if swapped:
        raise SourceError(f"the model's outputs are {', '.join(own)}: {', '.join(swapped)} is another of them")
    for value, new in zip(model.graph.output, names, strict=True):
        if value.name != new:
            _append_identity(model, value.name, new)
            value.name = new


def declare_shapes(values: Any, specs: Sequence[TensorSpec]) -> None:
    """Write the shapes of specs into a graph's inputs or outputs, so that the file says what the source says."""
    for value, spec in zip(values, specs, strict=True):
        shape = value.type.tensor_type.shape
        shape.Clear()
        shape.SetInParent()
        for size in spec.shape:
            if isinstance(size, str):
                shape.dim.add().dim_param = size
            else:
                shape.dim.add().dim_value = size


def _append_identity(model: Any, old: str, new: str) -> None:
    with needs("convert"):
        from onnx import helper
    model.graph.node.append(helper.make_node("Identity", [old], [new], name=f"name_{new}"))


def _drop_initializers_from_inputs(model: Any) -> None:
    """Old files list weights as inputs too, as defaults a caller may replace; the model's inputs they are not."""
    weights = {tensor.name for tensor in model.graph.initializer}
    real = [value for value in model.graph.input if value.name not in weights]
    if len(real) == len(model.graph.input):
        return
    del model.graph.input[:]
    model.graph.input.extend(real)
    model.ir_version = max(model.ir_version, _FIRST_IR_WITH_PLAIN_INITIALIZERS)
