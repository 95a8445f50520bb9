"""Trained activation ranges in a model that NNCF has quantized: the ends of its FakeQuantize operators are set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ipj_edge.protocols import Array
from ipj_edge.values import TrainedRanges
from ipj_edge_converters.openvino.file import import_openvino
from ipj_edge_converters.quantization.trained_ranges import find_ranges

_LEVELS = 256


def set_trained_ranges(
    quantized: Any, floating: Any, samples: Sequence[dict[str, Array]], ranges: TrainedRanges
) -> tuple[str, ...]:
    """Set the ends of every FakeQuantize of an activation that has a trained range.

    Args:
        quantized: The quantized ``openvino.Model``; changed in place.
        floating: The float model it was made from.
        samples: Feeds of the float model: every calibration sample.
        ranges: Trained ranges.

    Returns:
        The names of the ranges that match no tensor.
    """
    operators = {_source(operator): operator for operator in quantized.get_ops() if _rounds_activations(operator)}
    seen = _extremes(floating, list(operators), samples)
    named = {f"{name}:{port}": (name, port) for name, port in seen}
    found = find_ranges(ranges, {key: seen[place] for key, place in named.items()})
    for key, (low, high) in found.ends.items():
        _set_ends(quantized, named[key], *_with_exact_zero(low, high))
    return found.strays


def _rounds_activations(operator: Any) -> bool:
    if operator.get_type_name() != "FakeQuantize":
        return False
    source: str = operator.input_value(0).get_node().get_type_name()
    levels: int = operator.get_levels()
    return source != "Constant" and levels == _LEVELS


def _source(operator: Any) -> tuple[str, int]:
    output = operator.input_value(0)
    return output.get_node().get_friendly_name(), output.get_index()


def _extremes(
    floating: Any, places: Sequence[tuple[str, int]], samples: Sequence[dict[str, Array]]
) -> dict[tuple[str, int], tuple[float, float]]:
    """Run the float model over the samples and return the smallest and largest value at each place and output.

    NNCF does not round outputs; their ranges are looked at all the same, so that they are found.
    """
    openvino = import_openvino()
    model = floating.clone()
    nodes = {operator.get_friendly_name(): operator for operator in model.get_ops()}
    outputs = [_source(result) for result in model.get_results()]
    inside = [place for place in places if place[0] in nodes and place not in outputs]
    model.add_outputs([nodes[name].output(port) for name, port in inside])
    compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    known = [*outputs, *inside]
    seen = dict.fromkeys(known, (np.inf, -np.inf))
    for feed in samples:
        answers = compiled(feed)
        for index, place in enumerate(known):
            value = answers[index]
            low, high = seen[place]
            seen[place] = min(low, float(value.min())), max(high, float(value.max()))
    return seen


def _with_exact_zero(low: float, high: float) -> tuple[float, float]:
    """Move the ends, by less than a step, so that zero is one of the 256 levels."""
    scale = (high - low) / (_LEVELS - 1)
    zero_point = round(-low / scale)
    return -zero_point * scale, (_LEVELS - 1 - zero_point) * scale


def _set_ends(quantized: Any, place: tuple[str, int], low: float, high: float) -> None:
    openvino = import_openvino()
    for operator in quantized.get_ops():
        if _rounds_activations(operator) and _source(operator) == place:
            for port, end in ((1, low), (2, high), (3, low), (4, high)):
                before = operator.input_value(port).get_node()
                value = np.full(before.get_output_shape(0), end, dtype=np.float32)
                constant = openvino.opset13.constant(value, name=before.get_friendly_name())
                operator.input(port).replace_source_output(constant.output(0))
