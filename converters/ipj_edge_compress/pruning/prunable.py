"""Which channels of a network can really be taken out: every group is tried before any is pruned.

Torch-Pruning follows the network through its autograd graph. What it cannot follow (a view with fixed sizes, a
zero-padding of channels) shows only afterwards, as an error or, worse, as another function. So one channel of each
group is taken out of a copy, and the copy has to answer as the network does when nothing reads that channel.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import nn

from ipj_edge.errors import first_line
from ipj_edge_compress.errors import ModelError
from ipj_edge_compress.training.losses import logits_of
from ipj_edge_compress.training.modes import evaluating

# Layers whose output channels may be taken out.
ROOTS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)
_TOLERANCE = 1e-3


def dependency_graph(module: nn.Module, inputs: tuple[Any, ...]) -> Any:
    """Trace a module with all its exits.

    Raises:
        ModelError: it cannot be traced.
    """
    import torch_pruning

    try:
        return torch_pruning.DependencyGraph().build_dependency(
            module, example_inputs=list(inputs), output_transform=logits_of, verbose=False
        )
    except Exception as error:  # Torch-Pruning raises whatever it trips over
        raise ModelError(f"{type(module).__name__} cannot be traced for pruning: {first_line(error)}") from error


def unprunable(module: nn.Module, inputs: tuple[Any, ...]) -> dict[str, str]:
    """Return the layers whose output channels cannot be taken out, with the reason, by name."""
    names = [name for name, layer in module.named_modules() if isinstance(layer, ROOTS)]
    groups: dict[frozenset[str], list[str]] = {}
    graph = dependency_graph(module, inputs)
    by_name = dict(module.named_modules())
    reasons: dict[str, str] = {}
    for name in names:
        if by_name[name] not in graph.module2node:
            reasons[name] = "it does not take part in the forward pass"
        elif not _is_plain_grouped(by_name[name]):
            members = _members(module, graph, by_name[name])
            groups.setdefault(members, []).append(name)
    for layers in groups.values():
        reason = _try_group(module, layers[0], inputs)
        if reason:
            reasons |= dict.fromkeys(layers, reason)
    return reasons


def _is_plain_grouped(layer: nn.Module) -> bool:
    """Say whether a layer is depthwise: its channels follow those before it."""
    groups = getattr(layer, "groups", 1)
    return groups > 1 and groups == getattr(layer, "out_channels", 0)


def _members(module: nn.Module, graph: Any, layer: nn.Module) -> frozenset[str]:
    names = {inner: name for name, inner in module.named_modules()}
    group = graph.get_pruning_group(layer, out_function(layer), idxs=[0])
    return frozenset(
        f"{names[dependency.target.module]}:{_is_reader(dependency)}"
        for dependency, _ in group
        if dependency.target.module in names
    )


def _try_group(module: nn.Module, name: str, inputs: tuple[Any, ...]) -> str:
    """Take one channel out of a copy and compare; return why that does not work, or an empty text."""
    copy, silenced = deepcopy(module).eval(), deepcopy(module).eval()
    graph = dependency_graph(copy, inputs)
    layer = copy.get_submodule(name)
    channels = graph.get_out_channels(layer)
    step = getattr(layer, "groups", 1)
    if channels is None or channels // step < 2:
        return "it has a single channel"
    group = graph.get_pruning_group(layer, out_function(layer), idxs=_one_of_each(channels, step))
    readers = [
        (_name_of(copy, dependency.target.module), list(indices))
        for dependency, indices in group
        if _is_reader(dependency)
    ]
    if not readers:
        return "its channels are the model's output"
    try:
        group.prune()
        with evaluating(copy, silenced):
            _silence(silenced, readers)
            pairs = zip(logits_of(copy(*inputs)), logits_of(silenced(*inputs)), strict=True)
            same = all(_close(one, other) for one, other in pairs)
    except Exception as error:  # noqa: BLE001 # forward is the user's own
        return f"without one of its channels the model fails: {first_line(error, limit=160)}"
    return "" if same else "without one of its channels the model computes something else"


def _one_of_each(channels: int, groups: int) -> list[int]:
    """Return the first channel of each group of a grouped convolution; channel 0 of a plain layer."""
    return list(range(0, channels, channels // groups))


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=_TOLERANCE, atol=_TOLERANCE)


def _silence(module: nn.Module, readers: list[tuple[str, list[int]]]) -> None:
    """Let no layer read these of its input channels."""
    for name, indices in readers:
        layer = module.get_submodule(name)
        weight, groups = layer.weight, getattr(layer, "groups", 1)
        if groups == 1:
            weight[:, indices] = 0
            continue
        width, outputs = weight.shape[1], weight.shape[0] // groups
        for index in indices:
            part = index // width
            weight[part * outputs : (part + 1) * outputs, index % width] = 0


def _is_reader(dependency: Any) -> bool:
    """Say whether a dependency is a convolution or linear layer that reads the channels."""
    layer = dependency.target.module
    reads = getattr(dependency.handler, "__name__", "") == "prune_in_channels"
    return isinstance(layer, ROOTS) and reads and not _is_plain_grouped(layer)


def out_function(layer: nn.Module) -> Any:
    """Return Torch-Pruning's function that takes output channels out of a layer."""
    import torch_pruning

    if isinstance(layer, nn.Linear):
        return torch_pruning.prune_linear_out_channels
    depthwise = torch_pruning.prune_depthwise_conv_out_channels
    return depthwise if _is_plain_grouped(layer) else torch_pruning.prune_conv_out_channels


def _name_of(module: nn.Module, layer: nn.Module) -> str:
    return next(name for name, inner in module.named_modules() if inner is layer)
