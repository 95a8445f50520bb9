"""Metrics by name."""

from __future__ import annotations

import re
from collections.abc import Callable

from ipj_edge.errors import ConfigError
from ipj_edge.metrics.classification import F1, TopK
from ipj_edge.metrics.custom import Custom
from ipj_edge.metrics.ranking import Auc, ReconstructionAuc
from ipj_edge.metrics.score import Metric
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
    }
    if name in named:
        return named[name]()
    if ":" in name:
        return Custom(name)
    raise ConfigError(f"unknown metric '{name}': expected one of {', '.join(NAMES)}")
