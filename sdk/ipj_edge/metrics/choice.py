"""Metrics by name."""

from __future__ import annotations

import re
from collections.abc import Callable

from ipj_edge.errors import ConfigError, DataError
from ipj_edge.metrics.classification import F1, TopK
from ipj_edge.metrics.custom import Custom
from ipj_edge.metrics.label_maps import MeanIou, PixelAccuracy
from ipj_edge.metrics.ranking import Auc, ReconstructionAuc
from ipj_edge.metrics.score import Batch, Metric
from ipj_edge.metrics.values import MeanSquaredError, Perplexity

NAMES = (
    "top-1",
    "top-K",
    "f1",
    "f1-binary",
    "auc",
    "reconstruction-auc",
    "mse",
    "perplexity",
    "pixel-accuracy",
    "mean-iou",
    "module:function",
)


def make_metric(name: str) -> Metric:
    """Return a fresh metric by its name.

    Raises:
        ConfigError: no metric of that name; lists them.
        DataError: a user's function cannot be loaded.
    """
    match = re.fullmatch(r"top-?([1-9][0-9]*)", name)
    if match:
        return TopK(int(match.group(1)))
    named: dict[str, Callable[[], Metric]] = {
        "f1": F1,
        "f1-binary": lambda: F1("binary"),
        "auc": Auc,
        "reconstruction-auc": ReconstructionAuc,
        "mse": MeanSquaredError,
        "perplexity": Perplexity,
        "pixel-accuracy": PixelAccuracy,
        "mean-iou": MeanIou,
    }
    if name in named:
        return named[name]()
    if ":" in name:
        return Custom(name)
    raise ConfigError(f"unknown metric '{name}': expected one of {', '.join(NAMES)}")


def default_metrics(batch: Batch) -> tuple[str, ...]:
    """Return the metrics that fit outputs and labels where nobody asked for one; empty where none does.

    Scores of classes or class numbers with one label a sample: top-1. Label maps: pixel accuracy and mean IoU.
    """
    whole = batch.labels.dtype.kind in "iub"
    if batch.labels.ndim == 1 or not whole:
        numbers = whole and batch.class_numbers() is not None
        return ("top-1",) if batch.has_scores or numbers else ()
    try:
        batch.classes("the default")
    except DataError:
        return ("top-1",) if batch.has_scores else ()
    return ("pixel-accuracy", "mean-iou")
