"""Why training goes wrong, by name: the layer where NaN begins, parameters without a gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ipj_edge_compress.errors import TrainingError


def explain_non_finite(module: nn.Module, inputs: tuple[Any, ...], loss: float, step: int) -> TrainingError:
    """Run the module again and return an error that names the first layer to give NaN or infinity."""
    for name, parameter in module.named_parameters():
        if not torch.isfinite(parameter).all():
            return TrainingError(
                f"loss is {loss} at step {step}: the parameter '{name}' holds NaN or infinity; "
                "lower the learning rate or set clip_norm",
                name.rpartition(".")[0],
            )
    layer = _first_non_finite_layer(module, inputs)
    if layer is None:
        return TrainingError(
            f"loss is {loss} at step {step}, yet every layer's output is finite: the loss itself overflows or divides "
            "by zero"
        )
    return TrainingError(
        f"loss is {loss} at step {step}: '{layer}' is the first layer to give NaN or infinity from finite inputs; "
        "lower the learning rate, set clip_norm, or use bf16 instead of fp16",
        layer,
    )


def _first_non_finite_layer(module: nn.Module, inputs: tuple[Any, ...]) -> str | None:
    found: list[str] = []
    hooks = [
        inner.register_forward_hook(_watch(name or type(module).__name__, found))
        for name, inner in module.named_modules()
    ]
    try:
        with torch.no_grad():
            module(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else None


def _watch(name: str, found: list[str]) -> Any:
    def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
        tensors = output.values() if isinstance(output, dict) else output if isinstance(output, tuple) else (output,)
        if any(isinstance(one, torch.Tensor) and not torch.isfinite(one).all() for one in tensors):
            found.append(name)

    return hook


def parameters_without_gradient(module: nn.Module) -> list[str]:
    """Return the names of trainable parameters that the last backward pass did not reach."""
    return [name for name, one in module.named_parameters() if one.requires_grad and one.grad is None]
