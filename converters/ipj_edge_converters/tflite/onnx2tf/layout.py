"""Bring a .tflite file whose tensors may lie channels last back to its source's layout.

Which axis is which is settled by answers to asymmetric random inputs, never by sizes: 22×22 maps of 22 channels
fit six ways. Sizes only rule layouts out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, permutations, product
from typing import Any

import numpy as np

from ipj_edge.errors import ConversionError
from ipj_edge.protocols import Array
from ipj_edge_converters.tflite import edit as tflite_edit
from ipj_edge_converters.tflite import file as tflite_file
from ipj_edge_converters.tflite.child import run_apart

Order = tuple[int, ...]

# An fp32 file that computes what its source does, in another order of sums, is well within this.
_SAME = 1e-3
_MOST_TRIES = 48


def in_source_layout(
    data: bytes, feeds: Sequence[Mapping[str, Array]], answers: Sequence[Mapping[str, Array]]
) -> bytes:
    """Return a file that takes the feeds, and gives the answers, as the source does.

    Args:
        data: A float file with one signature whose arguments have the names of the feeds and answers.
        feeds: The source's inputs, one mapping a sample.
        answers: What the source answers to each.

    Raises:
        ConversionError: no order of the axes makes the file answer as its source.
    """
    facts = tflite_file.read_facts(data)
    shapes = {tensor.argument: tensor.shape for tensor in facts.inputs}
    closest = (np.inf, "")
    for orders in _input_orders(feeds[0], shapes):
        turned = [{name: np.transpose(array, orders[name]) for name, array in each.items()} for each in feeds]
        given = run_apart(data, turned)
        found = {name: _output_order(name, given, answers) for name in answers[0]}
        worst = max(found, key=lambda name: found[name][1])
        if found[worst][1] <= _SAME:
            return _turned(data, orders, {name: order for name, (order, _) in found.items()})
        closest = min(closest, (found[worst][1], worst))
    raise ConversionError(
        "the converted file answers differently from its source, whichever way its axes are read: "
        f"at best, output '{closest[1]}' has relative L2 {closest[0]:.3g}"
    )


def _input_orders(feeds: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]) -> Iterator[dict[str, Order]]:
    """Yield ways to turn the inputs that fit the file's sizes, the source's own layout first."""
    ways = [list(_fitting(np.shape(array), shapes[name])) for name, array in feeds.items()]
    for name, way in zip(feeds, ways, strict=True):
        if not way:
            raise ConversionError(
                f"input '{name}' has shape {shapes[name]} in the file where the source has {np.shape(feeds[name])}"
            )
    for chosen in islice(product(*ways), _MOST_TRIES):
        yield dict(zip(feeds, chosen, strict=True))


def _output_order(
    name: str, given: Sequence[Mapping[str, Array]], wanted: Sequence[Mapping[str, Array]]
) -> tuple[Order, float]:
    """Return the order of the axes that brings an output closest to the source's, and its relative L2."""
    got, want = np.stack([each[name] for each in given]), np.stack([each[name] for each in wanted])
    ways = list(_fitting(got.shape[1:], want.shape[1:]))
    if not ways:
        raise ConversionError(
            f"output '{name}' has shape {got.shape[1:]} in the file where the source has {want.shape[1:]}"
        )
    errors = [_distance(np.transpose(got, (0, *(1 + axis for axis in way))), want) for way in ways]
    best = int(np.argmin(errors))
    return ways[best], errors[best]


def _fitting(have: tuple[int, ...], want: tuple[int, ...]) -> Iterator[Order]:
    for order in permutations(range(len(have))):
        if tuple(have[axis] for axis in order) == tuple(want):
            yield order


def _distance(got: Array, want: Array) -> float:
    size = float(np.linalg.norm(want.astype(np.float64)))
    error = float(np.linalg.norm(got.astype(np.float64) - want.astype(np.float64)))
    return error / size if size > 0 else error


def _turned(data: bytes, inputs: Mapping[str, Order], outputs: Mapping[str, Order]) -> bytes:
    """Return the file with a TRANSPOSE at every input and output whose axes are to be reordered."""
    if all(order == tuple(range(len(order))) for order in (*inputs.values(), *outputs.values())):
        return data
    model = tflite_file.parse(data)
    signature = tflite_file.only_signature(model)
    graph = model.subgraphs[signature.subgraphIndex]
    for entry in signature.inputs:
        _turn(model, graph, entry, inputs[tflite_file.text(entry.name)], is_input=True)
    for entry in signature.outputs:
        _turn(model, graph, entry, outputs[tflite_file.text(entry.name)], is_input=False)
    return tflite_file.pack(model)


def _turn(model: Any, graph: Any, entry: Any, order: Order, *, is_input: bool) -> None:
    if order == tuple(range(len(order))):
        return
    inner = entry.tensorIndex
    shape = [int(size) for size in graph.tensors[inner].shape]
    # An input comes in the source's layout: transposing it by `order` has to give the file's.
    outer_shape = [shape[order.index(axis)] for axis in range(len(order))] if is_input else [shape[a] for a in order]
    outer = tflite_edit.add_tensor(model, graph, like=inner, shape=outer_shape, suffix="_as_in_source")
    source, result = (outer, inner) if is_input else (inner, outer)
    tflite_edit.add_transpose(model, graph, source, result, order, first=is_input)
    places = graph.inputs if is_input else graph.outputs
    moved = [outer if index == inner else int(index) for index in places]
    if is_input:
        graph.inputs = moved
    else:
        graph.outputs = moved
    entry.tensorIndex = outer
