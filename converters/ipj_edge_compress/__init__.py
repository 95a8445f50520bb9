"""Compression before conversion: train, distil, prune, factorise, quantization-aware training, early exits.

Every step is one function that works on any ``nn.Module`` and any iterable of batches.
"""

from __future__ import annotations

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
from ipj_edge_compress.scores import accuracies, accuracy
from ipj_edge_compress.training import train

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
    "accuracies",
    "accuracy",
    "cross_entropy",
    "distil",
    "factorise",
    "mean_squared_error",
    "prune",
    "self_distillation",
    "train",
    "train_heads",
    "train_jointly",
    "train_quantized",
]
