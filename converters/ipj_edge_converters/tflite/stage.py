"""A stage of a .tflite file as a file of its own: an edit of the flatbuffer, nothing is converted again.

Format: TensorFlow Lite schema version 3 (``schema.fbs``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ipj_edge_converters.tflite import file as tflite_file
from ipj_edge_converters.tflite.file import schema

_KEPT_METADATA = frozenset(("min_runtime_version",))


def stage_bytes(data: bytes, operators: Sequence[int], takes: Mapping[str, int], adds: Mapping[str, int]) -> bytes:
    """Return the file of one stage.

    Args:
        data: The whole file: one graph, one signature, every buffer inline.
        operators: Indices of the stage's operators.
        takes: Tensors that become inputs, by the name they get in the signature.
        adds: Tensors that become outputs, likewise.
    """
    model = tflite_file.parse(data)
    (graph,) = model.subgraphs
    graph.operators = [graph.operators[each] for each in operators]
    places = _keep_tensors(graph, (*takes.values(), *adds.values()))
    _name_apart({name: graph.tensors[places[old]] for name, old in (*takes.items(), *adds.items())})
    graph.inputs = [places[each] for each in takes.values()]
    graph.outputs = [places[each] for each in adds.values()]
    model.signatureDefs = [_signature(graph, takes, adds)]
    _keep_codes(model, graph)
    _keep_buffers(model, graph)
    return tflite_file.pack(model)


def _keep_tensors(graph: Any, ends: Iterable[int]) -> dict[int, int]:
    """Drop tensors that no operator touches; return the new places of the others."""
    touched = {int(each) for each in ends}
    for operator in graph.operators:
        for each in _index_lists(operator):
            touched.update(int(index) for index in each if index >= 0)
    places = {old: new for new, old in enumerate(sorted(touched))}
    graph.tensors = [graph.tensors[old] for old in sorted(touched)]
    for operator in graph.operators:
        operator.inputs = _moved(operator.inputs, places)
        operator.outputs = _moved(operator.outputs, places)
        operator.intermediates = _moved(operator.intermediates, places)
    return places


def _name_apart(ends: Mapping[str, Any]) -> None:
    """Give ends that share a name the names of the signature: engines are asked for tensors by name."""
    names = [tflite_file.text(tensor.name) for tensor in ends.values()]
    for name, tensor in ends.items():
        if names.count(tflite_file.text(tensor.name)) > 1:
            tensor.name = name


def _index_lists(operator: Any) -> list[Any]:
    return [each for each in (operator.inputs, operator.outputs, operator.intermediates) if each is not None]


def _moved(indices: Any, places: Mapping[int, int]) -> list[int] | None:
    """Return new places; −1 stands for an optional input that is absent."""
    return None if indices is None else [places[int(index)] if index >= 0 else -1 for index in indices]


def _signature(graph: Any, takes: Mapping[str, int], adds: Mapping[str, int]) -> Any:
    signature = schema().SignatureDefT()
    signature.signatureKey = b"serving_default"
    signature.inputs = [_argument(name, place) for name, place in zip(takes, graph.inputs, strict=True)]
    signature.outputs = [_argument(name, place) for name, place in zip(adds, graph.outputs, strict=True)]
    return signature


def _argument(name: str, place: int) -> Any:
    argument = schema().TensorMapT()
    argument.name, argument.tensorIndex = name, place
    return argument


def _keep_codes(model: Any, graph: Any) -> None:
    kept = sorted({operator.opcodeIndex for operator in graph.operators})
    model.operatorCodes = [model.operatorCodes[old] for old in kept]
    for operator in graph.operators:
        operator.opcodeIndex = kept.index(operator.opcodeIndex)


def _keep_buffers(model: Any, graph: Any) -> None:
    """Drop buffers that are not used, and share the first one, which is empty by definition, among what has no data."""
    model.metadata = [each for each in model.metadata or [] if tflite_file.text(each.name) in _KEPT_METADATA]
    model.metadataBuffer = None
    buffers, places = [model.buffers[0]], {0: 0}
    for holder in (*graph.tensors, *model.metadata):
        old = holder.buffer
        if old not in places:
            data = model.buffers[old].data
            places[old] = len(buffers) if data is not None and len(data) else 0
            if places[old]:
                buffers.append(model.buffers[old])
        holder.buffer = places[old]
    model.buffers = buffers
