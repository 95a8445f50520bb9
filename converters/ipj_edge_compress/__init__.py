"""Compression before conversion: train, distil, prune, factorise, quantization-aware training, early exits.

Every step is one function that works on any ``nn.Module`` and any iterable of batches. Names are imported when first
used, so that plugins found here do not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ipj_edge_compress.distillation.distil import Teaching, distil
    from ipj_edge_compress.errors import GoalError, ModelError, TrainingError
    from ipj_edge_compress.exits.multi_exit import MultiExit
    from ipj_edge_compress.exits.training import train_heads, train_jointly
    from ipj_edge_compress.lowrank.factorise import LowRankPlan, LowRankReport, factorise
    from ipj_edge_compress.pruning.prune import PrunePlan, PruneReport, prune
    from ipj_edge_compress.quantize.accuracy_search import convert_accurately
    from ipj_edge_compress.quantize.sensitivity import sensitivities
    from ipj_edge_compress.quantize.training import Quantized, train_quantized
    from ipj_edge_compress.recipes.runner import run_recipe
    from ipj_edge_compress.training.batches import ArrayBatches
    from ipj_edge_compress.training.loop import train
    from ipj_edge_compress.training.losses import cross_entropy, mean_squared_error, self_distillation
    from ipj_edge_compress.training.plans import TrainPlan, TrainReport
    from ipj_edge_compress.training.scores import accuracies, accuracy
    from ipj_edge_compress.training.varied import Variation, VariedImages

_HOMES = {
    "ArrayBatches": "training.batches",
    "GoalError": "errors",
    "LowRankPlan": "lowrank.factorise",
    "LowRankReport": "lowrank.factorise",
    "ModelError": "errors",
    "MultiExit": "exits.multi_exit",
    "PrunePlan": "pruning.prune",
    "PruneReport": "pruning.prune",
    "Quantized": "quantize.training",
    "Teaching": "distillation.distil",
    "TrainPlan": "training.plans",
    "TrainReport": "training.plans",
    "TrainingError": "errors",
    "Variation": "training.varied",
    "VariedImages": "training.varied",
    "accuracies": "training.scores",
    "accuracy": "training.scores",
    "convert_accurately": "quantize.accuracy_search",
    "cross_entropy": "training.losses",
    "distil": "distillation.distil",
    "factorise": "lowrank.factorise",
    "mean_squared_error": "training.losses",
    "prune": "pruning.prune",
    "run_recipe": "recipes.runner",
    "self_distillation": "training.losses",
    "sensitivities": "quantize.sensitivity",
    "train": "training.loop",
    "train_heads": "exits.training",
    "train_jointly": "exits.training",
    "train_quantized": "quantize.training",
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
