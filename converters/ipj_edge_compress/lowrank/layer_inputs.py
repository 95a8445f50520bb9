"""What the inputs of a layer are like: the root of their second moment, so that what comes in weighs an error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from ipj_edge_compress.training.batches import Batches, to_device
from ipj_edge_compress.training.modes import evaluating

# Directions that (almost) never occur weigh at least this share of the largest: their root has to have an inverse.
_LEAST_SHARE = 1e-7


def input_roots(module: nn.Module, layers: Mapping[str, nn.Module], batches: Batches) -> dict[str, torch.Tensor]:
    """Return for each layer R with R·Rᵀ = E[x·xᵀ], where the layer computes W·x; shape (rest, rest), float64.

    ‖(W − W′)·R‖² is the mean squared error of the layer's output, so that the singular values of W·R are what is lost
    (used for low rank by Zhang et al. 2016, "Accelerating very deep convolutional networks", section 3.1).

    Args:
        module: The network.
        layers: Linear layers and ungrouped convolutions of it.
        batches: Data to run on.
    """
    moments: dict[str, torch.Tensor] = {}
    device = next(module.parameters()).device
    with _watching(layers, moments), evaluating(module):
        for batch in batches:
            inputs, _ = to_device(batch, device)
            module(*inputs)
    return {name: _root(moment) for name, moment in moments.items()}


@contextmanager
def _watching(layers: Mapping[str, nn.Module], moments: dict[str, torch.Tensor]) -> Iterator[None]:
    def watch(name: str) -> Any:
        def hook(layer: nn.Module, given: tuple[torch.Tensor, ...]) -> None:
            columns = _columns(layer, given[0].detach()).double()
            moments[name] = moments.get(name, 0) + columns.T @ columns

        return hook

    hooks = [layer.register_forward_pre_hook(watch(name)) for name, layer in layers.items()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _columns(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Return what the layer's matrix is applied to, one row a place: shape (places, rest)."""
    if isinstance(layer, nn.Linear):
        return x.flatten(0, -2)
    assert isinstance(layer, nn.Conv2d)
    if isinstance(layer.padding, str) or layer.padding_mode != "zeros":
        x = functional.pad(x, layer._reversed_padding_repeated_twice, _MODES[layer.padding_mode])
        padding: Any = 0
    else:
        padding = layer.padding
    cut = functional.unfold(x, layer.kernel_size, layer.dilation, padding, layer.stride)
    return cut.transpose(1, 2).flatten(0, 1)


_MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "replicate", "circular": "circular"}


def _root(moment: torch.Tensor) -> torch.Tensor:
    values, vectors = torch.linalg.eigh(moment / moment.diagonal().sum().clamp_min(1e-300))
    return vectors * values.clamp_min(_LEAST_SHARE * float(values.max())).sqrt()
