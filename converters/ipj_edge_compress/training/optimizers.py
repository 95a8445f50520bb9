"""Optimizers and learning-rate schedules of a plan."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from ipj_edge_compress.training.plans import TrainPlan

_WARM_UP_SHARE = 0.3


def make_optimizer(parameters: Iterable[nn.Parameter], plan: TrainPlan) -> torch.optim.Optimizer:
    """Return the plan's optimizer; weight decay spares vectors (biases, normalisation)."""
    listed = [parameter for parameter in parameters if parameter.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [one for one in listed if one.ndim > 1], "weight_decay": plan.weight_decay},
        {"params": [one for one in listed if one.ndim <= 1], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if plan.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=plan.learning_rate, momentum=0.9, nesterov=True)
    return torch.optim.AdamW(groups, lr=plan.learning_rate)


def learning_rate_at(plan: TrainPlan, done: float) -> float:
    """Return the learning rate when a share ``done`` (0..1) of the training is over.

    Cosine: lr/2 · (1 + cos πs). One-cycle (Smith and Topin 2017): from lr/25 up over the first 30 %, then down to
    almost nothing, both along a cosine.
    """
    peak = plan.learning_rate
    if plan.schedule == "constant":
        return peak
    if plan.schedule == "cosine":
        return peak / 2 * (1 + math.cos(math.pi * done))
    if done < _WARM_UP_SHARE:
        return peak / 25 + (peak - peak / 25) / 2 * (1 - math.cos(math.pi * done / _WARM_UP_SHARE))
    return peak / 2 * (1 + math.cos(math.pi * (done - _WARM_UP_SHARE) / (1 - _WARM_UP_SHARE)))


def set_learning_rate(optimizer: torch.optim.Optimizer, value: float) -> None:
    """Give every group the learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = value
