"""Compression before conversion: train, distil, prune, factorise, quantization-aware training, early exits.

Every step is one function that works on any ``nn.Module`` and any iterable of batches. Names are imported when first
used, so that plugins found here do not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ipj_edge_compress.accuracy_search import convert_accurately
    from ipj_edge_compress.batches import ArrayBatches
    from ipj_edge_compress.distillation import Teaching, distil
    from ipj_edge_compress.errors import GoalError, ModelError, TrainingError
    from ipj_edge_compress.exit_training import train_heads, train_jointly
    from ipj_edge_compress.losses import cross_entropy, mean_squared_error, self_distillation
    from ipj_edge_compress.low_rank import LowRankPlan, LowRankReport, factorise
    from ipj_edge_compress.multi_exit import MultiExit
    from ipj_edge_compress.plans import TrainPlan, TrainReport
    from ipj_edge_compress.pruning import PrunePlan, PruneReport, prune
    from ipj_edge_compress.quantization import Quantized, train_quantized
    from ipj_edge_compress.runner import run_recipe
    from ipj_edge_compress.scores import accuracies, accuracy
    from ipj_edge_compress.sensitivity import sensitivities
    from ipj_edge_compress.training import train
    from ipj_edge_compress.varied import Variation, VariedImages

_HOMES = {
    "ArrayBatches": "batches",
    "GoalError": "errors",
    "LowRankPlan": "low_rank",
    "LowRankReport": "low_rank",
    "ModelError": "errors",
    "MultiExit": "multi_exit",
    "PrunePlan": "pruning",
    "PruneReport": "pruning",
    "Quantized": "quantization",
    "Teaching": "distillation",
    "TrainPlan": "plans",
    "TrainReport": "plans",
    "TrainingError": "errors",
    "Variation": "varied",
    "VariedImages": "varied",
    "accuracies": "scores",
    "accuracy": "scores",
    "convert_accurately": "accuracy_search",
    "cross_entropy": "losses",
    "distil": "distillation",
    "factorise": "low_rank",
    "mean_squared_error": "losses",
    "prune": "pruning",
    "run_recipe": "runner",
    "self_distillation": "losses",
    "sensitivities": "sensitivity",
    "train": "training",
    "train_heads": "exit_training",
    "train_jointly": "exit_training",
    "train_quantized": "quantization",
}

__all__ = [
    "ArrayBatches",
    "GoalError",
    "LowRankPlan",
    "LowRankReport",
    "ModelError",
    "MultiExit",
    "PrunePlan",
    "PruneReport",
    "Quantized",
    "Teaching",
    "TrainPlan",
    "TrainReport",
    "TrainingError",
    "Variation",
    "VariedImages",
    "accuracies",
    "accuracy",
    "convert_accurately",
    "cross_entropy",
    "distil",
    "factorise",
    "mean_squared_error",
    "prune",
    "run_recipe",
    "self_distillation",
    "sensitivities",
    "train",
    "train_heads",
    "train_jointly",
    "train_quantized",
]


def __getattr__(name: str) -> Any:
    """Import a public name from its home when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'ipj_edge_compress' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"ipj_edge_compress.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
