"""Quality of values and of probabilities: mean squared error and perplexity."""

from __future__ import annotations

import msgspec
import numpy as np

from ipj_edge.errors import DataError
from ipj_edge.metrics.bootstrap import ratio_interval
from ipj_edge.metrics.score import IGNORED, Batch, Score
from ipj_edge.protocols import Array


class MeanSquaredError:
    """Mean over all elements of (answer − label)²; labels shaped as the first output."""

    name, is_rate, higher_is_better = "mse", False, False

    def __init__(self) -> None:
        self._errors: list[Array] = []

    def add(self, batch: Batch) -> None:
        """Keep the error of every sample of one batch."""
        got, wanted = batch.values(), batch.labels
        if got.ndim == wanted.ndim + 1 and got.shape[-1] == 1:
            got = got[..., 0]
        if got.shape != wanted.shape:
            raise DataError(f"mse needs labels shaped as the output; got {wanted.shape} for {got.shape}")
        difference = got.astype(np.float64) - wanted.astype(np.float64)
        self._errors.append((difference**2).reshape(len(got), -1).mean(axis=1))

    def score(self) -> Score:
        """Return the mean with its bootstrap interval."""
        return _mean(self.name, np.concatenate(self._errors), None)


class Perplexity:
    """exp of the mean negative log likelihood of the labels, over all positions that are not `IGNORED`.

    Logits of shape (n, classes) with n labels, or (n, positions, classes) with labels (n, positions).
    """

    name, is_rate, higher_is_better = "perplexity", False, False

    def __init__(self) -> None:
        self._losses: list[Array] = []
        self._counts: list[Array] = []

    def add(self, batch: Batch) -> None:
        """Keep loss and positions of every sample of one batch."""
        logs, labels = batch.log_probabilities(self.name), batch.labels
        if labels.shape != logs.shape[:-1] or labels.dtype.kind not in "iu":
            raise DataError(
                f"perplexity needs integer labels of shape {logs.shape[:-1]}; got {labels.dtype} {labels.shape}"
            )
        counted = labels != IGNORED
        inside = (labels >= 0) & (labels < logs.shape[-1])
        if not inside[counted].all():
            raise DataError(f"perplexity: labels outside the model's classes 0 to {logs.shape[-1] - 1}")
        picked = np.take_along_axis(logs, np.where(counted, labels, 0)[..., None], axis=-1)[..., 0]
        losses = np.where(counted, -picked, 0.0)
        self._losses.append(losses.reshape(len(labels), -1).sum(axis=1))
        self._counts.append(counted.reshape(len(labels), -1).sum(axis=1))

    def score(self) -> Score:
        """Return perplexity with the bootstrap interval of the loss behind it."""
        losses, counts = np.concatenate(self._losses), np.concatenate(self._counts)
        used = counts > 0
        if not used.any():
            return Score(metric=self.name, value=None, reason="no label is counted", n=0, higher_is_better=False)
        loss = _mean(self.name, losses[used], counts[used])
        if loss.value is None or loss.value > 700:
            reason = loss.reason or "a label has probability 0: perplexity is infinite"
            return Score(metric=self.name, value=None, reason=reason, n=len(losses), higher_is_better=False)
        return msgspec.structs.replace(
            loss, value=_exp(loss.value), low=_exp(loss.low), high=_exp(loss.high), metric=self.name
        )


def _exp(loss: float | None) -> float | None:
    return None if loss is None else float(np.exp(min(loss, 700.0)))


def _mean(metric: str, values: Array, weights: Array | None) -> Score:
    """Return a mean per sample, or per position, with its bootstrap interval."""
    if not np.isfinite(values).all():
        bad = int((~np.isfinite(values)).sum())
        reason = f"the answers to {bad} of {len(values)} samples give no finite figure"
        return Score(metric=metric, value=None, reason=reason, n=len(values), higher_is_better=False)
    interval = ratio_interval(values, weights)
    return Score(
        metric=metric, value=interval.value, low=interval.low, high=interval.high, n=len(values), interval="bootstrap",
        higher_is_better=False,
    )  # fmt: skip
