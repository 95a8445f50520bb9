"""Low rank: a linear layer or convolution becomes two smaller ones, where that is measured to be faster."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import torch
from torch import nn

from ipj_edge.errors import ConfigError, first_line
from ipj_edge_compress.cost.size import Size, seconds_of, size_of
from ipj_edge_compress.lowrank.layer_inputs import input_roots
from ipj_edge_compress.training.batches import Batches, as_inputs
from ipj_edge_compress.training.modes import evaluating

Clock = Callable[[nn.Module, nn.Module, torch.Tensor], tuple[float, float]]

FAILURES = (RuntimeError, AttributeError, TypeError, ValueError)


class LowRankPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How much of each layer to keep.

    Attributes:
        energy: Share of the squared singular values to keep, 0..1; with batches, that of the output's energy.
        target_macs: Share of the multiply-accumulates to keep; where given, the energy that gives it is searched, not
            below ``energy``.
        without: Modules to leave alone, by name.
        least_gain: A layer is replaced where its time falls by at least this share.
    """

    energy: float = 0.95
    target_macs: float | None = None
    without: tuple[str, ...] = ()
    least_gain: float = 0.02

    def __post_init__(self) -> None:
        if not 0 < self.energy < 1:
            raise ConfigError(f"energy lies between 0 and 1, got {self.energy:g}")
        if self.target_macs is not None and not 0 < self.target_macs < 1:
            raise ConfigError(f"target_macs lies between 0 and 1, got {self.target_macs:g}")


class Factored(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one layer.

    Attributes:
        rank: Rank it would have.
        full_rank: Rank it could have at most.
        time_ratio: Seconds of the two layers over seconds of the one; None where it was not measured.
        kept: Whether it was replaced.
        reason: Why not.
    """

    rank: int
    full_rank: int
    time_ratio: float | None = None
    kept: bool = False
    reason: str = ""


class LowRankReport(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes before and after, the energy kept, and every layer by name."""

    before: Size
    after: Size
    energy: float
    layers: dict[str, Factored]


def factorise(
    module: nn.Module,
    example: Any,
    plan: LowRankPlan | None = None,
    *,
    batches: Batches | None = None,
    clock: Clock | None = None,
) -> LowRankReport:
    """Replace layers of a module, in place, by pairs of lower rank.

    W ≈ (U_r S_r) V_r by the singular value decomposition of the weight as a matrix (outputs × rest); a k×k convolution
    becomes k×k to rank r, then 1×1 (Denton et al. 2014; Zhang et al. 2016).

    Args:
        module: Any module.
        example: Example inputs of the batch size that time is measured at.
        plan: How much of each layer to keep.
        batches: Data; with it the error is weighed by what comes in, and the least of the *output* is lost: much
            lower ranks do where inputs are alike. Without it the weights alone decide.
        clock: (layer, pair, input) → seconds of each; default: torch on one CPU thread, taking turns.

    Returns:
        What became of each layer; nothing may have been replaced.
    """
    plan = plan or LowRankPlan()
    inputs, clock = as_inputs(example), clock or _torch_clock
    before = size_of(module, example)
    seen = _layer_inputs(module, inputs)
    layers = {name: layer for name, layer in _candidates(module, plan).items() if name in seen}
    roots = {} if batches is None else input_roots(module, layers, batches)
    values = {name: torch.linalg.svdvals(_weighed(layer, roots.get(name))) for name, layer in layers.items()}
    energy = plan.energy if plan.target_macs is None else _searched_energy(layers, values, seen, before, plan)
    found = {
        name: _try_layer(
            module, name, inputs, _Try(_rank(values[name], energy), roots.get(name), seen[name]), plan.least_gain, clock
        )
        for name in layers
    }
    return LowRankReport(before=before, after=size_of(module, example), energy=energy, layers=found)


def split(layer: nn.Module, rank: int, root: torch.Tensor | None = None) -> nn.Sequential:
    """Return two layers that compute a layer at a lower rank, with the least error for inputs of this root."""
    u, s, v = torch.linalg.svd(_weighed(layer, root), full_matrices=False)
    left, right = (u[:, :rank] * s[:rank]), v[:rank]
    if root is not None:
        right = torch.linalg.solve(root, right, left=False)
    pair = _linear_pair(layer, rank) if isinstance(layer, nn.Linear) else _conv_pair(layer, rank)
    with torch.no_grad():
        pair[0].weight.copy_(right.reshape(pair[0].weight.shape))
        pair[1].weight.copy_(left.reshape(pair[1].weight.shape))
        if layer.bias is not None:
            pair[1].bias.copy_(layer.bias)
    return pair.to(layer.weight.device, layer.weight.dtype).train(layer.training)


def _linear_pair(layer: nn.Linear, rank: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(layer.in_features, rank, bias=False),
        nn.Linear(rank, layer.out_features, bias=layer.bias is not None),
    )


def _conv_pair(layer: nn.Module, rank: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(
            layer.in_channels, rank, layer.kernel_size, layer.stride, layer.padding, layer.dilation, bias=False,
            padding_mode=layer.padding_mode,
        ),
        nn.Conv2d(rank, layer.out_channels, 1, bias=layer.bias is not None),
    )  # fmt: skip


def _candidates(module: nn.Module, plan: LowRankPlan) -> dict[str, nn.Module]:
    """Return the layers to try; exactly these classes, for others may be used in ways a pair cannot serve."""
    return {
        name: layer
        for name, layer in module.named_modules()
        if (type(layer) is nn.Linear or (type(layer) is nn.Conv2d and layer.groups == 1))
        and not any(name == one or name.startswith(f"{one}.") for one in plan.without)
    }


def _layer_inputs(module: nn.Module, inputs: tuple[Any, ...]) -> dict[str, torch.Tensor]:
    """Return what each layer gets when the module runs."""
    seen: dict[str, torch.Tensor] = {}

    def watch(name: str) -> Any:
        return lambda _layer, given: seen.setdefault(name, given[0].detach())

    hooks = [
        layer.register_forward_pre_hook(watch(name))
        for name, layer in module.named_modules()
        if isinstance(layer, (nn.Linear, nn.Conv2d))
    ]
    try:
        with evaluating(module):
            module(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def _matrix(layer: nn.Module) -> torch.Tensor:
    return layer.weight.detach().double().flatten(1)


def _weighed(layer: nn.Module, root: torch.Tensor | None) -> torch.Tensor:
    return _matrix(layer) if root is None else _matrix(layer) @ root.to(layer.weight.device)


def _rank(values: torch.Tensor, energy: float) -> int:
    """Return the smallest rank that keeps this share of the squared singular values."""
    kept = torch.cumsum(values**2, 0) / torch.sum(values**2).clamp_min(1e-300)
    return int((kept < energy).sum()) + 1


def _pays(layer: nn.Module, rank: int) -> bool:
    outputs, rest = _matrix(layer).shape
    return rank * (outputs + rest) < outputs * rest


def _searched_energy(
    layers: dict[str, nn.Module],
    values: dict[str, torch.Tensor],
    seen: dict[str, torch.Tensor],
    before: Size,
    plan: LowRankPlan,
) -> float:
    """Return the largest energy, of steps of a thousandth, whose multiply-accumulates fit the budget."""
    samples = len(next(iter(seen.values()))) if seen else 1
    places = {name: _places(layer, seen[name]) / samples for name, layer in layers.items()}
    for thousandths in range(999, math.floor(1000 * plan.energy), -1):
        saved = 0.0
        for name, layer in layers.items():
            outputs, rest = _matrix(layer).shape
            rank = _rank(values[name], thousandths / 1000)
            saved += max(0, outputs * rest - rank * (outputs + rest)) * places[name]
        if before.macs - saved <= (plan.target_macs or 0) * before.macs:
            return thousandths / 1000
    return plan.energy


def _places(layer: nn.Module, given: torch.Tensor) -> int:
    """Return how often a layer's matrix is applied to its input."""
    with torch.no_grad():
        answer = layer(given)
    return int(answer.numel() // layer.weight.shape[0])


class _Try(NamedTuple):
    """A rank for a layer, the root of its inputs, and an input to time it on."""

    rank: int
    root: torch.Tensor | None
    given: torch.Tensor


def _try_layer(
    module: nn.Module, name: str, inputs: tuple[Any, ...], one: _Try, least_gain: float, clock: Clock
) -> Factored:
    layer, rank = module.get_submodule(name), one.rank
    full = min(_matrix(layer).shape)
    if not _pays(layer, rank):
        return Factored(rank=rank, full_rank=full, reason="it would take as many multiply-accumulates")
    pair = split(layer, rank, one.root)
    slow, fast = clock(layer, pair, one.given)
    ratio = fast / slow
    if ratio > 1 - least_gain:
        return Factored(rank=rank, full_rank=full, time_ratio=ratio, reason="its measured time does not fall")
    module.set_submodule(name, pair)
    try:
        with evaluating(module):
            module(*inputs)
    except FAILURES as error:
        module.set_submodule(name, layer)
        why = f"the model does not take two layers for it: {first_line(error, limit=120)}"
        return Factored(rank=rank, full_rank=full, time_ratio=ratio, reason=why)
    return Factored(rank=rank, full_rank=full, time_ratio=ratio, kept=True)


def _torch_clock(layer: nn.Module, pair: nn.Module, given: torch.Tensor) -> tuple[float, float]:
    slow, fast = seconds_of([layer, pair], given)
    return slow, fast
