"""Which graph of a .tflite file is run, and under which names: its signature, or the main graph of a file without one.

A file may have several signatures, each over a graph of its own. Engines run the first graph when nobody asks for
a signature, so the chosen one is moved to the front, and the bundle runs alike on every engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ipj_edge.errors import SourceError
from ipj_edge_converters.tflite import file as tflite_file
from ipj_edge_converters.tflite.file import TfliteTensor

# Fields of operators' options that name a graph of the file (schema.fbs).
_GRAPH_FIELDS = (
    *("thenSubgraphIndex", "elseSubgraphIndex", "condSubgraphIndex", "bodySubgraphIndex", "initSubgraphIndex"),
    *("subgraph", "decompositionSubgraphIndex", "updateComputationSubgraphIndex", "comparatorSubgraphIndex"),
)


class TfliteEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What callers run of a file.

    Attributes:
        inputs: Tensors it takes, in order.
        outputs: Tensors it makes, in order.
        open_sizes: Axes whose size the file leaves open, by name of the input.
    """

    inputs: tuple[TfliteTensor, ...]
    outputs: tuple[TfliteTensor, ...]
    open_sizes: dict[str, tuple[int, ...]]


def with_entry_in_front(model: Any, wanted: str, file: str) -> bool:
    """Make the wanted signature's graph the first one, and that signature the only one; say whether anything changed.

    Args:
        model: The file's object tree; changed in place.
        wanted: Key of a signature; empty where the file has one or none.
        file: Name of the file, for messages.

    Raises:
        SourceError: no such signature, or several and none was named.
    """
    signatures = model.signatureDefs or []
    keys = [tflite_file.text(each.signatureKey) for each in signatures]
    if wanted and wanted not in keys:
        raise SourceError(f"{file} has no signature '{wanted}'; it has {', '.join(keys) or 'none'}")
    if not wanted and len(keys) > 1:
        raise SourceError(f"{file} has the signatures {', '.join(keys)}: name one, e.g. {file}:{keys[0]}")
    if not keys:
        return False
    chosen = signatures[keys.index(wanted) if wanted else 0]
    if len(keys) == 1 and chosen.subgraphIndex == 0:
        return False
    _to_front(model, int(chosen.subgraphIndex))
    chosen.subgraphIndex = 0
    model.signatureDefs = [chosen]
    return True


def with_names(model: Any) -> bool:
    """Give inputs and outputs of the first graph names where they have none or share one; say whether that was needed.

    Engines find tensors by name.
    """
    graph, renamed = model.subgraphs[0], False
    for side, indices in (("input", graph.inputs), ("output", graph.outputs)):
        names = [tflite_file.text(graph.tensors[index].name) for index in indices]
        if all(names) and len(set(names)) == len(names):
            continue
        renamed = True
        for number, index in enumerate(dict.fromkeys(int(index) for index in indices)):
            graph.tensors[index].name = f"{side}_{number}".encode()
    return renamed


def with_sizes(model: Any, sizes: Mapping[str, Sequence[int]]) -> bool:
    """Write sizes of inputs that the file leaves open into it; say whether there were any."""
    graph, changed = model.subgraphs[0], False
    for name, index in _arguments(model, "inputs"):
        tensor = graph.tensors[index]
        if name in sizes and tuple(sizes[name]) != tflite_file.shape_of(tensor):
            tensor.shape, tensor.shapeSignature, changed = list(sizes[name]), None, True
    return changed


def read_entry(model: Any) -> TfliteEntry:
    """Describe the first graph of a file, under the names of its signature where there is one.

    Raises:
        ConversionError: an input or output has a scale per channel.
    """
    graph = model.subgraphs[0]
    inputs, outputs = _arguments(model, "inputs"), _arguments(model, "outputs")
    return TfliteEntry(
        inputs=tuple(tflite_file.described(graph.tensors[index], name) for name, index in inputs),
        outputs=tuple(tflite_file.described(graph.tensors[index], name) for name, index in outputs),
        open_sizes={name: _open_axes(graph.tensors[index]) for name, index in inputs},
    )


def _arguments(model: Any, side: str) -> list[tuple[str, int]]:
    """Return name and tensor of each input or output, in the graph's order."""
    graph = model.subgraphs[0]
    places = [int(index) for index in getattr(graph, side)]
    signature = next((each for each in model.signatureDefs or [] if each.subgraphIndex == 0), None)
    if signature is None:
        return [(tflite_file.text(graph.tensors[index].name), index) for index in places]
    named = [(tflite_file.text(each.name), int(each.tensorIndex)) for each in getattr(signature, side)]
    return sorted(named, key=lambda pair: places.index(pair[1]) if pair[1] in places else len(places))


def _open_axes(tensor: Any) -> tuple[int, ...]:
    signature = tensor.shapeSignature
    return () if signature is None else tuple(axis for axis, size in enumerate(signature) if size < 0)


def _to_front(model: Any, index: int) -> None:
    """Swap a graph with the first one, wherever graphs are named by number."""
    swap = {0: index, index: 0}
    graphs = model.subgraphs
    graphs[0], graphs[index] = graphs[index], graphs[0]
    for _, operator in tflite_file.operators_of(model):
        for options in (operator.builtinOptions, operator.builtinOptions2):
            for field in _GRAPH_FIELDS if options is not None else ():
                old = getattr(options, field, None)
                if old in swap:
                    setattr(options, field, swap[old])
