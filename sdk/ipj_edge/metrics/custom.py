"""A user's own metric: ``module:function``."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from ipj_edge.errors import DataError
from ipj_edge.metrics.bootstrap import ratio_interval
from ipj_edge.metrics.score import Batch, Score, rate
from ipj_edge.protocols import Array


class Custom:
    """``function(outputs, labels)``, called once with all answers.

    It is given the outputs by name and the labels, and returns one figure, or one value a sample: bools are correct
    answers (a rate, Wilson interval), numbers are averaged (bootstrap interval). An attribute
    ``higher_is_better = False`` on the function turns the direction round. All outputs are kept in memory.
    """

    is_rate = False

    def __init__(self, location: str) -> None:
        self.name = location
        self._function = _load(location)
        self.higher_is_better = bool(getattr(self._function, "higher_is_better", True))
        self._outputs: dict[str, list[Array]] = {}
        self._labels: list[Array] = []

    def add(self, batch: Batch) -> None:
        """Keep the answers of one batch."""
        for name, value in batch.outputs.items():
            self._outputs.setdefault(name, []).append(value.copy())
        self._labels.append(batch.labels)

    def score(self) -> Score:
        """Call the function."""
        outputs = {name: np.concatenate(parts) for name, parts in self._outputs.items()}
        labels = np.concatenate(self._labels)
        figure = np.asarray(self._function(outputs, labels))
        if figure.shape not in ((), (len(labels),)) or figure.dtype.kind not in "biuf":
            raise DataError(
                f"{self.name} has to return one number, or one a sample ({len(labels)}); "
                f"it returned {figure.dtype} of shape {figure.shape}"
            )
        return self._scored(figure, len(labels))

    def _scored(self, figure: Array, n: int) -> Score:
        if figure.dtype.kind == "b" and figure.ndim:
            return rate(self.name, int(figure.sum()), n)
        if not np.isfinite(figure).all():
            return self._score(n, value=None, reason=f"{self.name} returned a value that is no finite number")
        if not figure.ndim:
            return self._score(n, value=float(figure))
        interval = ratio_interval(figure.astype(np.float64))
        return self._score(n, value=interval.value, low=interval.low, high=interval.high, interval="bootstrap")

    def _score(self, n: int, **fields: Any) -> Score:
        return Score(metric=self.name, n=n, higher_is_better=self.higher_is_better, **fields)


def _load(location: str) -> Callable[[dict[str, Array], Array], Any]:
    module, _, name = location.partition(":")
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise DataError(f"cannot load the metric '{location}': {error}") from error
    if not callable(function):
        raise DataError(f"the metric '{location}' is no function")
    return function  # type: ignore[no-any-return]
