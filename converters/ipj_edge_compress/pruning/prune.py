"""Structured pruning: channels are taken out of every layer that shares them, tensors really shrink."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, Literal

import msgspec
import torch
from torch import nn

from ipj_edge.errors import ConfigError
from ipj_edge.plugins import needs
from ipj_edge_compress.cost.size import Size, seconds_of, size_of
from ipj_edge_compress.errors import GoalError, ModelError
from ipj_edge_compress.pruning.channels import Ranked, rank, select, take_out
from ipj_edge_compress.pruning.prunable import unprunable
from ipj_edge_compress.training.batches import Batches, as_inputs, to_device
from ipj_edge_compress.training.losses import LossFunction, cross_entropy

CostFunction = Callable[[nn.Module], float]

# Shares of channels that are tried are multiples of 1/256.
_SHARES = 256


class PrunePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to prune and how far.

    Attributes:
        target: Share of the cost to keep, e.g. 0.5.
        criterion: ``l1`` (norm of the weights), ``taylor`` (first-order effect on the loss; needs batches) or ``bn``
            (scale of the batch normalisation).
        scope: ``layer`` takes the same share of each layer; ``global`` ranks the channels of all layers together, which
            takes most from layers whose channels cost little.
        round_to: Channels left are a multiple of this.
        largest_share: Largest share of a layer's channels to take out.
        rounds: Pruning in so many parts, each followed by ``recover``.
        without: Modules to leave alone, by name.
        partly: Go on where some layers cannot be pruned; otherwise that is an error.
    """

    target: float = 0.5
    criterion: Literal["l1", "taylor", "bn"] = "l1"
    scope: Literal["global", "layer"] = "layer"
    round_to: int = 1
    largest_share: float = 0.9
    rounds: int = 1
    without: tuple[str, ...] = ()
    partly: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.target < 1:
            raise ConfigError(f"the share of the cost to keep lies between 0 and 1, got {self.target:g}")
        if not 0 < self.largest_share < 1:
            raise ConfigError(f"largest_share lies between 0 and 1 (no layer may lose all), got {self.largest_share:g}")
        if self.round_to < 1 or self.rounds < 1:
            raise ConfigError("round_to and rounds are at least 1")


class PruneReport(msgspec.Struct, frozen=True, kw_only=True):
    """What pruning came to.

    Attributes:
        before: Size before.
        after: Size after.
        cost: Share of the cost that is left (the target was a bound).
        speedup: Seconds before over seconds after, in torch on one CPU thread at the example's batch.
        left_alone: Layers that were not pruned, with the reason.
    """

    before: Size
    after: Size
    cost: float
    speedup: float
    left_alone: dict[str, str]


def prune(
    module: nn.Module,
    example: Any,
    plan: PrunePlan | None = None,
    *,
    batches: Batches | None = None,
    loss: LossFunction | None = None,
    cost: CostFunction | None = None,
    recover: Callable[[nn.Module], object] | None = None,
) -> PruneReport:
    """Prune a module in place until its cost is at most the target's share of what it was.

    Args:
        module: Any module; all its exits are traced.
        example: Example inputs with a batch axis; two samples or more where it has batch normalisation.
        plan: What to prune and how far.
        batches: Data for the Taylor criterion and for the statistics of batch normalisation.
        loss: Loss of the Taylor criterion; default: cross entropy over all exits.
        cost: What has to fall: seconds, joules, …; default: multiply-accumulates.
        recover: Called with the module after each round, e.g. to fine-tune it.

    Raises:
        ModelError: the module cannot be traced, a layer cannot be pruned (unless ``partly``), or the result is
            neither smaller nor faster.
        GoalError: the target cannot be reached; says how far it came.
        ConfigError: Taylor without batches.
    """
    plan = plan or PrunePlan()
    if plan.criterion == "taylor" and batches is None:
        raise ConfigError("the Taylor criterion needs batches: it looks at gradients")
    inputs = as_inputs(example)
    price = cost or (lambda pruned: float(size_of(pruned, example).macs))
    original, before, full = deepcopy(module), size_of(module, example), price(module)
    left_alone = _left_alone(module, inputs, plan)
    for index in range(plan.rounds):
        bound = full * plan.target ** ((index + 1) / plan.rounds)
        _prune_to(module, inputs, plan, left_alone, _falls_to(price, bound), batches, loss)
        if batches is not None:
            reestimate_batch_norm(module, batches)
        if recover is not None:
            recover(module)
    after, kept = size_of(module, example), price(module) / full
    _check_layers(module)
    slow, fast = seconds_of([original, module], example)
    report = PruneReport(before=before, after=after, cost=kept, speedup=slow / fast, left_alone=left_alone)
    if after.parameters >= before.parameters or (after.macs >= before.macs and report.speedup <= 1):
        raise ModelError(
            f"pruning made nothing smaller or faster: {after.parameters} of {before.parameters} parameters"
        )
    if kept > plan.target:
        raise GoalError(
            f"pruning reached {100 * kept:.1f} % of the cost, {100 * plan.target:g} % was wanted: "
            f"at most {100 * plan.largest_share:g} % of a layer's channels may go, and "
            f"{len(left_alone)} layers cannot be pruned ({', '.join(list(left_alone)[:3])})"
        )
    return report


def _falls_to(price: CostFunction, bound: float) -> Callable[[nn.Module], bool]:
    return lambda pruned: price(pruned) <= bound


def _left_alone(module: nn.Module, inputs: tuple[Any, ...], plan: PrunePlan) -> dict[str, str]:
    with needs("compress"):
        import torch_pruning  # noqa: F401
    known = dict(module.named_modules())
    missing = [name for name in plan.without if name not in known]
    if missing:
        raise ModelError(f"{type(module).__name__} has no module '{missing[0]}' to leave alone")
    found = unprunable(module, inputs)
    broken = {name: why for name, why in found.items() if "model's output" not in why and "single" not in why}
    if broken and not plan.partly:
        name, why = next(iter(broken.items()))
        raise ModelError(f"'{name}' cannot be pruned: {why}")
    asked = {inner: "asked for" for name in plan.without for inner, _ in known[name].named_modules(prefix=name)}
    return {**found, **asked}


def _prune_to(
    module: nn.Module,
    inputs: tuple[Any, ...],
    plan: PrunePlan,
    left_alone: dict[str, str],
    fits: Callable[[nn.Module], bool],
    batches: Batches | None,
    loss: LossFunction | None,
) -> None:
    """Take out the smallest share of the channels that fits, found by halving on copies; all that may go if none."""
    if plan.criterion == "taylor" and batches is not None:
        _accumulate_gradients(module, batches, loss or cross_entropy())
    ranked = rank(module, inputs, _importance(plan), left_alone)
    module.zero_grad(set_to_none=True)
    low, high = 0, _SHARES
    while high - low > 1:
        middle = (low + high) // 2
        copy = deepcopy(module)
        take_out(copy, inputs, _chosen(ranked, plan, middle))
        low, high = (low, middle) if fits(copy) else (middle, high)
    take_out(module, inputs, _chosen(ranked, plan, high))


def _chosen(ranked: Sequence[Ranked], plan: PrunePlan, place: int) -> dict[str, list[int]]:
    return select(
        ranked,
        place / _SHARES,
        together=plan.scope == "global",
        largest_share=plan.largest_share,
        round_to=plan.round_to,
    )


def _importance(plan: PrunePlan) -> Any:
    import torch_pruning

    if plan.criterion == "taylor":
        return torch_pruning.importance.GroupTaylorImportance()
    if plan.criterion == "bn":
        return torch_pruning.importance.BNScaleImportance()
    return torch_pruning.importance.GroupMagnitudeImportance(p=1)


def _accumulate_gradients(module: nn.Module, batches: Batches, loss: LossFunction) -> None:
    """Leave the gradient of the loss over all batches in the parameters, statistics untouched."""
    device = next(module.parameters()).device
    module.zero_grad(set_to_none=True)
    module.eval()
    for batch in batches:
        inputs, targets = to_device(batch, device)
        loss(module, inputs, targets).backward()


def reestimate_batch_norm(module: nn.Module, batches: Batches) -> None:
    """Set the statistics of batch normalisation to their mean over the batches."""
    norms = [one for one in module.modules() if isinstance(one, nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    momenta = [one.momentum for one in norms]
    device = next(module.parameters()).device
    module.eval()
    for one in norms:
        one.reset_running_stats()
        one.momentum = None  # a cumulative mean
        one.train()
    with torch.no_grad():
        for batch in batches:
            inputs, targets = to_device(batch, device)
            if len(targets) > 1:
                module(*inputs)
    for one, momentum in zip(norms, momenta, strict=True):
        one.momentum = momentum
    module.eval()


def _check_layers(module: nn.Module) -> None:
    for name, layer in module.named_modules():
        weight = getattr(layer, "weight", None)
        if isinstance(weight, torch.Tensor) and 0 in weight.shape:
            raise ModelError(f"pruning left '{name}' without channels")
