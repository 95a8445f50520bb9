"""Quality of answers against labels."""

from ipj_edge.metrics.choice import NAMES, default_metrics, make_metric
from ipj_edge.metrics.classification import top1_correct
from ipj_edge.metrics.ranking import auc
from ipj_edge.metrics.score import Batch, Metric, Score

__all__ = ["NAMES", "Batch", "Metric", "Score", "auc", "default_metrics", "make_metric", "top1_correct"]
