"""Scores on labelled data."""

from __future__ import annotations

import torch
from torch import nn

from ipj_edge_compress.training.batches import Batches, to_device
from ipj_edge_compress.training.losses import logits_of
from ipj_edge_compress.training.modes import evaluating


def accuracies(module: nn.Module, batches: Batches) -> list[float]:
    """Return top-1 accuracy, 0..1, of every exit, the deepest last."""
    device = next(module.parameters()).device
    correct: list[int] = []
    samples = 0
    with evaluating(module):
        for batch in batches:
            inputs, targets = to_device(batch, device)
            hits = [int((one.argmax(-1) == targets).sum()) for one in logits_of(module(*inputs))]
            correct = [a + b for a, b in zip(correct or [0] * len(hits), hits, strict=True)]
            samples += len(targets)
    return [one / samples for one in correct]


def accuracy(module: nn.Module, batches: Batches) -> float:
    """Return top-1 accuracy, 0..1, of the deepest exit."""
    return accuracies(module, batches)[-1]


def negative_mean_squared_error(module: nn.Module, batches: Batches) -> float:
    """Return minus the mean squared error of the deepest exit: the larger the better."""
    device = next(module.parameters()).device
    total, count = 0.0, 0
    with evaluating(module):
        for batch in batches:
            inputs, targets = to_device(batch, device)
            error = logits_of(module(*inputs))[-1] - targets
            total += float(torch.square(error).sum())
            count += error.numel()
    return -total / count
