"""Quantization-aware training whose result is a float model that every target's own quantizer takes up alike.

The weights end on their per-channel symmetric int8 grid, so that max|w| / 127 gives their scales again and rounding
changes nothing; the activation ranges go beside it. Every engine then has the trained integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import fx, nn
from torch.nn.utils import parametrize

from ipj_edge.values import ActivationRange
from ipj_edge_compress.errors import ModelError
from ipj_edge_compress.exits.multi_exit import MultiExit, first
from ipj_edge_compress.quantize.fake import OnGrid, RangePoint, integer_weights
from ipj_edge_compress.quantize.folding import folded
from ipj_edge_compress.quantize.range_points import FloatNodes, insert_points, remove_points
from ipj_edge_compress.training.batches import Batches, as_inputs
from ipj_edge_compress.training.loop import EpochProgress, ScoreFunction, train
from ipj_edge_compress.training.losses import LossFunction
from ipj_edge_compress.training.modes import evaluating
from ipj_edge_compress.training.plans import TrainPlan, TrainReport

_ON_GRID = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)
_NORMS = nn.modules.batchnorm._BatchNorm


class Quantized(msgspec.Struct, frozen=True, kw_only=True):
    """What quantization-aware training hands over.

    Attributes:
        module: Float module, batch normalisation folded, weights on their grid.
        ranges: Trained range of every point, with what passes there on the calibration inputs.
        report: The training's report; None when there was none.
    """

    module: Any
    ranges: tuple[ActivationRange, ...]
    report: TrainReport | None


def train_quantized(
    module: nn.Module,
    batches: Batches,
    calibration: Sequence[Any],
    plan: TrainPlan | None = None,
    *,
    loss: LossFunction | None = None,
    score: ScoreFunction | None = None,
    checkpoint: Path | None = None,
    progress: EpochProgress = lambda _epoch, _figures: None,
) -> Quantized:
    """Train a module as int8 engines will run it, and hand over a float module and its ranges.

    Args:
        module: Any module that torch.fx can trace (each stage and head of a `MultiExit` by itself); left as it is.
        batches: See `train`.
        calibration: Batches of inputs that the ranges start from and that the converters will calibrate on.
        plan: See `train`; small learning rates.
        loss: See `train`.
        score: See `train`; scores the rounded network.
        checkpoint: See `train`.
        progress: See `train`.

    Raises:
        ModelError: the module cannot be traced; says which part.
        TrainingError: see `train`.
    """
    network = prepare(module, calibration)
    norms = tuple(one for one in network.modules() if isinstance(one, _NORMS))
    report = train(
        network, batches, plan or TrainPlan(epochs=3, learning_rate=1e-4), loss=loss, score=score, frozen=norms,
        checkpoint=checkpoint, progress=progress,
    )  # fmt: skip
    return hand_over(network, calibration, report)


def prepare(module: nn.Module, calibration: Sequence[Any]) -> nn.Module:
    """Return a copy of a module that computes as int8 engines do, ready to be trained.

    Raises:
        ModelError: a part cannot be traced, or nothing in it can be quantized.
    """
    if not len(calibration):
        raise ModelError("quantization needs calibration inputs: some tens of real ones")
    network = _with_points(module, as_inputs(calibration[0]))
    for layer in network.modules():
        if type(layer) in _ON_GRID:
            parametrize.register_parametrization(layer, "weight", OnGrid(), unsafe=True)
    points = dict(_points(network))
    if not any(parametrize.is_parametrized(layer) for layer in network.modules()):
        raise ModelError(f"{type(module).__name__} has no convolution or linear layer to quantize")
    _watch(network, points, calibration)
    for point in points.values():
        point.begin()
    return network.train(module.training)


def hand_over(network: nn.Module, calibration: Sequence[Any], report: TrainReport | None = None) -> Quantized:
    """Turn a prepared network into a float module with weights on their grid, and its ranges."""
    for layer in list(network.modules()):
        if parametrize.is_parametrized(layer):
            parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
    points = dict(_points(network))
    trained = {name: (float(point.low.detach()), float(point.high.detach())) for name, point in points.items()}
    for point in points.values():
        point.mode = "watch"
        point.forget()
    _watch(network, points, calibration)
    ranges = tuple(
        ActivationRange(
            name=name.replace("range_", ""), low=trained[name][0], high=trained[name][1],
            seen_low=float(point.seen_low), seen_high=float(point.seen_high),
        )
        for name, point in points.items()
    )  # fmt: skip
    for part in network.modules():
        if isinstance(part, fx.GraphModule):
            remove_points(part)
    return Quantized(module=network.eval(), ranges=ranges, report=report)


def grid_weights(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return the int8 integers of every weight that was put on a grid, by the name of its layer."""
    return {
        name: integer_weights(layer.weight).to(torch.int8)
        for name, layer in module.named_modules()
        if type(layer) in _ON_GRID
    }


def _points(network: nn.Module) -> Iterator[tuple[str, RangePoint]]:
    return ((name, one) for name, one in network.named_modules() if isinstance(one, RangePoint))


def _watch(network: nn.Module, points: dict[str, RangePoint], calibration: Sequence[Any]) -> None:
    with evaluating(network):
        for inputs in calibration:
            network(*as_inputs(inputs))
    silent = [name for name, point in points.items() if not torch.isfinite(point.seen_high)]
    if silent:
        raise ModelError(f"no finite values pass '{silent[0].replace('range_', '')}' on the calibration inputs")


def _with_points(module: nn.Module, inputs: tuple[Any, ...]) -> nn.Module:
    if not isinstance(module, MultiExit):
        return _part(module, inputs, "", inputs_rounded=True)
    stages, heads = [], []
    value: Any = inputs
    for index, (stage, head) in enumerate(zip(module.stages, module.heads, strict=True)):
        given = value if isinstance(value, tuple) else (value,)
        stages.append(_part(stage, given, f"stages.{index}", inputs_rounded=index == 0))
        with evaluating(stage):
            value = stage(*given)
        heads.append(_part(head, (first(value),), f"heads.{index}", inputs_rounded=False))
    return MultiExit(stages, heads)


def _part(module: nn.Module, inputs: tuple[Any, ...], name: str, *, inputs_rounded: bool) -> fx.GraphModule:
    traced = folded(module, name)
    nodes = FloatNodes(traced)
    with evaluating(traced):
        nodes.run(*inputs)
    insert_points(traced, nodes.names, inputs=inputs_rounded)
    return traced
