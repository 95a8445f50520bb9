"""Losses: functions (module, inputs, targets) → mean loss over the samples, for one output or several exits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from ipj_edge.errors import ConfigError
from ipj_edge_compress.training.batches import check_labels

LossFunction = Callable[[nn.Module, tuple[Any, ...], torch.Tensor], torch.Tensor]


def logits_of(answer: Any) -> list[torch.Tensor]:
    """Return the logits of every exit, the deepest last, from what a module returned."""
    if isinstance(answer, torch.Tensor):
        return [answer]
    return list(answer.values()) if isinstance(answer, Mapping) else list(answer)


def cross_entropy(*, label_smoothing: float = 0.0, weights: Sequence[float] | None = None) -> LossFunction:
    """Return Σ w_k · CE_k over the exits of a module (one for a plain module).

    Args:
        label_smoothing: Share of the target spread over all classes.
        weights: One weight an exit; default: rising with depth, 1 for the last (Kaya et al. 2019, "Shallow-Deep
            Networks", ramp their heads likewise).
    """

    def loss(module: nn.Module, inputs: tuple[Any, ...], targets: torch.Tensor) -> torch.Tensor:
        logits = logits_of(module(*inputs))
        check_labels(targets, logits[-1].shape[-1])
        terms = [functional.cross_entropy(one, targets, label_smoothing=label_smoothing) for one in logits]
        return weighted(terms, weights)

    return loss


def mean_squared_error(module: nn.Module, inputs: tuple[Any, ...], targets: torch.Tensor) -> torch.Tensor:
    """Return the mean squared error of the last output."""
    return functional.mse_loss(logits_of(module(*inputs))[-1], targets)


def self_distillation(*, temperature: float = 3.0, share: float = 0.5, label_smoothing: float = 0.0) -> LossFunction:
    """Return the joint loss of all exits, where the last exit teaches the earlier ones.

    Σ w_k · CE_k + share · Σ_{k<K} w_k · T² · KL(sg(p_K) ‖ p_k), p softened by T, sg = no gradient.
    """

    def loss(module: nn.Module, inputs: tuple[Any, ...], targets: torch.Tensor) -> torch.Tensor:
        *early, last = logits_of(module(*inputs))
        check_labels(targets, last.shape[-1])
        hard = [functional.cross_entropy(one, targets, label_smoothing=label_smoothing) for one in (*early, last)]
        soft = [softened_kl(one, last.detach(), temperature) for one in early]
        return weighted(hard, None) + share * weighted([*soft, last.new_zeros(())], None)

    return loss


def softened_kl(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return T² · KL(softmax(teacher/T) ‖ softmax(student/T)), the mean over the batch.

    T² keeps the gradient's size independent of T (Hinton, Vinyals, Dean 2015, section 2).
    """
    return temperature**2 * functional.kl_div(
        functional.log_softmax(student / temperature, dim=-1),
        functional.log_softmax(teacher / temperature, dim=-1),
        log_target=True,
        reduction="batchmean",
    )


def weighted(terms: Sequence[torch.Tensor], weights: Sequence[float] | None) -> torch.Tensor:
    """Add the terms of the exits, by default with weights that rise from 0.3 to 1 with depth.

    Raises:
        ConfigError: another number of weights than of exits.
    """
    count = len(terms)
    if weights is None:
        weights = [1.0 if index == count - 1 else 0.3 + 0.5 * index / max(1, count - 1) for index in range(count)]
    if len(weights) != count:
        raise ConfigError(f"{len(weights)} weights for a model with {count} exits")
    return torch.stack([weight * term for weight, term in zip(weights, terms, strict=True)]).sum()
