"""Which layers suffer from int8: one layer rounded at a time, everything else in float."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import torch
from torch import fx, nn
from torch.nn.utils import parametrize

from ipj_edge_compress.quantize.fake import RangePoint
from ipj_edge_compress.quantize.training import prepare
from ipj_edge_compress.training.loop import ScoreFunction
from ipj_edge_compress.training.modes import evaluating


class Sensitivity(msgspec.Struct, frozen=True, kw_only=True):
    """What rounding one layer costs: score in float, score with it rounded, and the drop."""

    layer: str
    score: float
    drop: float


def sensitivities(module: nn.Module, calibration: Sequence[Any], score: ScoreFunction) -> tuple[Sensitivity, ...]:
    """Round the weights and the output of one layer at a time and score the network; worst first.

    Nothing is trained and the module is left as it is.

    Args:
        module: Any module that torch.fx can trace.
        calibration: Batches of inputs that the ranges come from.
        score: The larger the better, e.g. accuracy on validation data.

    Raises:
        ModelError: the module cannot be traced, or nothing in it can be quantized.
    """
    network = prepare(module, calibration).eval()
    points = [one for one in network.modules() if isinstance(one, RangePoint)]
    layers = {name: one for name, one in network.named_modules() if parametrize.is_parametrized(one)}
    with torch.no_grad():
        rounded = {name: layer.weight.clone() for name, layer in layers.items()}
    for layer in layers.values():
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    for point in points:
        point.mode = "watch"
    with evaluating(network):
        full = float(score(network))
        found = [_rounded_alone(network, name, rounded[name], full, score) for name in layers]
    return tuple(sorted(found, key=lambda one: -one.drop))


def _rounded_alone(
    network: nn.Module, name: str, weight: torch.Tensor, full: float, score: ScoreFunction
) -> Sensitivity:
    layer = network.get_submodule(name)
    kept, point = layer.weight.detach().clone(), _point_behind(network, name)
    layer.weight.copy_(weight)
    if point is not None:
        point.mode = "round"
    value = float(score(network))
    layer.weight.copy_(kept)
    if point is not None:
        point.mode = "watch"
    return Sensitivity(layer=name, score=value, drop=full - value)


def _point_behind(network: nn.Module, name: str) -> RangePoint | None:
    """Return the range point behind a layer, past an activation that engines fuse with it."""
    part, target = _home(network, name)
    nodes = [node for node in part.graph.nodes if node.op == "call_module" and node.target == target]
    for _ in range(2):
        nodes = [user for node in nodes for user in node.users]
        for node in nodes:
            if node.op == "call_module" and isinstance(part.get_submodule(str(node.target)), RangePoint):
                point: RangePoint = part.get_submodule(str(node.target))
                return point
    return None


def _home(network: nn.Module, name: str) -> tuple[fx.GraphModule, str]:
    """Return the traced part that calls a layer, and the layer's name in it."""
    parts = {
        prefix: one
        for prefix, one in network.named_modules()
        if isinstance(one, fx.GraphModule) and (not prefix or name.startswith(f"{prefix}."))
    }
    prefix = max(parts, key=len)
    return parts[prefix], name[len(prefix) + 1 :] if prefix else name
