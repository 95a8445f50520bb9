"""Which channels to take out: scores by group, a selection for a share, and taking them out."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import torch
from torch import nn

from ipj_edge_compress.pruning.prunable import ROOTS, dependency_graph, out_function


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """A group of channels that go together.

    Attributes:
        root: Name of the layer that makes them.
        scores: Importance of each, shape (channels / parts,).
        parts: The channels come in so many equal parts (grouped convolutions); each part loses the same ones.
    """

    root: str
    scores: Any
    parts: int


def rank(module: nn.Module, inputs: tuple[Any, ...], importance: Any, left_alone: Collection[str]) -> list[Ranked]:
    """Score the channels of every group that may be pruned.

    Args:
        module: The network; gradients are in place where the importance needs them.
        inputs: Example inputs.
        importance: An importance of Torch-Pruning.
        left_alone: Names of layers to leave alone.
    """
    graph = dependency_graph(module, inputs)
    layers = dict(module.named_modules())
    names = {layer: name for name, layer in layers.items()}
    ignored = [layers[name] for name in left_alone if name in layers]
    ranked = []
    for group in graph.get_all_groups(ignored_layers=ignored, root_module_types=list(ROOTS)):
        scores = importance(group)
        if scores is None:
            continue
        parts = max(_parts(dependency.target.module) for dependency, _ in group)
        shared = scores.detach().cpu().view(parts, -1).mean(0)
        ranked.append(Ranked(root=names[group[0].dep.target.module], scores=shared, parts=parts))
    return ranked


def select(
    ranked: Sequence[Ranked], share: float, *, together: bool, largest_share: float, round_to: int
) -> dict[str, list[int]]:
    """Choose the least important channels.

    Args:
        ranked: Scored groups.
        share: Share of the channels to take out, 0..1.
        together: Rank the channels of all groups together, each group's scores over their mean.
        largest_share: Largest share of a group.
        round_to: Channels left are a multiple of this; a group that cannot give one is left whole.

    Returns:
        Channel indices to take out, by the name of the group's root.
    """
    counts = _counts(ranked, share, together=together)
    chosen = {}
    for group, count in zip(ranked, counts, strict=True):
        size = len(group.scores)
        least = max(1, math.ceil(size * (1 - largest_share)))
        left = math.ceil(max(size - count, least) * group.parts / round_to) * round_to
        if left % group.parts == 0 and left < size * group.parts:
            order = torch.argsort(group.scores, stable=True)[: size - left // group.parts]
            chosen[group.root] = sorted(int(index) + part * size for part in range(group.parts) for index in order)
    return chosen


def take_out(module: nn.Module, inputs: tuple[Any, ...], chosen: dict[str, list[int]]) -> None:
    """Take channels out of a module in place."""
    graph = dependency_graph(module, inputs)
    for name, indices in chosen.items():
        layer = module.get_submodule(name)
        graph.get_pruning_group(layer, out_function(layer), idxs=indices).prune()


def _counts(ranked: Sequence[Ranked], share: float, *, together: bool) -> list[int]:
    if not together:
        return [math.floor(len(group.scores) * share) for group in ranked]
    relative = [group.scores / group.scores.mean().clamp_min(1e-30) for group in ranked]
    joined = torch.cat(relative).sort().values
    count = math.floor(len(joined) * share)
    if count == 0:
        return [0] * len(ranked)
    return [int((scores <= joined[count - 1]).sum()) for scores in relative]


def _parts(layer: nn.Module) -> int:
    """Return the number of parts whose channels a layer keeps apart; 1 for a depthwise convolution."""
    if isinstance(layer, nn.GroupNorm):
        return layer.num_groups
    groups = getattr(layer, "groups", 1)
    return 1 if groups == getattr(layer, "out_channels", 0) else groups
