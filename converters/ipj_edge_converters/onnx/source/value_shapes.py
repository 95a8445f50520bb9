"""Which outputs of an ONNX model have shapes that hang on the values in an input, and on which inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ipj_edge.plugins import needs
from ipj_edge_converters.onnx.graphs import inner_graphs

# Inputs of operators whose values say how large the answer is.
_SIZES: Mapping[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "Compress": (1,),
    "ConstantOfShape": (0,),
    "DFT": (1,),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "If": (0,),
    "Loop": (0, 1),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1),
    "NonMaxSuppression": (0, 1, 2, 3, 4),
    "NonZero": (0,),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (2, 3),
    "STFT": (1, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Squeeze": (1,),
    "Tile": (1, 2),
    "TopK": (1,),
    "Unique": (0,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}
_SHAPES_ONLY = ("Shape", "Size")
# Here it is the data themselves that say it.
_DATA = ("NonZero", "Unique", "Compress", "NonMaxSuppression")
_HANDED_ON = frozenset(
    (
        *("Identity", "Cast", "Concat", "Unsqueeze", "Squeeze", "Reshape", "Slice", "Gather"),
        *("Add", "Sub", "Mul", "Div", "Neg", "Min", "Max"),
    )
)

InputNames = frozenset[str]
_NONE: InputNames = frozenset()


def deciding_inputs(model: Any) -> dict[str, InputNames]:
    """Return, by the name of each output, the inputs on whose values its shape hangs; empty sets are left out."""
    values: dict[str, InputNames] = {value.name: frozenset((value.name,)) for value in model.graph.input}
    shapes: dict[str, InputNames] = {}
    for node in model.graph.node:  # which are in topological order
        captured = list(_captured(node))
        taken = [*node.input, *captured]
        hangs = _union(shapes, taken) | _union(values, [*_slots(node), *captured])
        holds = _union(shapes if node.op_type in _SHAPES_ONLY else values, taken)
        for name in node.output:
            shapes[name], values[name] = hangs, holds
    return {value.name: shapes[value.name] for value in model.graph.output if shapes.get(value.name)}


def settings(model: Any) -> InputNames:
    """Return the inputs that say how large an output is: lists of whole numbers, such as a shape or a count.

    They are no samples, whatever their size is. Lengths of samples, of which only the longest counts, are none.
    """
    direct = {value.name: frozenset((value.name,)) for value in model.graph.input if _is_list_of_integers(value)}
    found = _NONE
    for node in model.graph.node:  # which are in topological order
        if node.op_type not in _DATA:
            found |= _union(direct, _slots(node))
        if node.op_type in _HANDED_ON:
            direct |= dict.fromkeys(node.output, _union(direct, node.input))
    return found


def _is_list_of_integers(value: Any) -> bool:
    with needs("convert"):
        from onnx import helper
    tensor = value.type.tensor_type
    sizes = tensor.shape.dim
    if value.type.WhichOneof("value") != "tensor_type" or len(sizes) > 1 or any(size.dim_param for size in sizes):
        return False
    return np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)).kind in "iu"


def _slots(node: Any) -> list[str]:
    places = (1,) if node.op_type.startswith("Reduce") else _SIZES.get(node.op_type, ())
    return [node.input[place] for place in places if place < len(node.input)]


def _captured(node: Any) -> Iterator[str]:
    """Yield what the graphs inside a node take, their own tensors included, which hang on nothing outside."""
    for graph in inner_graphs(node):
        for inner in graph.node:
            yield from inner.input
            yield from _captured(inner)


def _union(known: Mapping[str, InputNames], names: Iterable[str]) -> InputNames:
    return _NONE.union(*(known.get(name, _NONE) for name in names))
