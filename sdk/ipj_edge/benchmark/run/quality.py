"""Accuracy of a loaded bundle on labelled data, batch by batch."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from ipj_edge.benchmark.result.schema import Accuracy, ExitRecord, ReliabilityBin
from ipj_edge.errors import DataError
from ipj_edge.metrics import Batch, Metric, Score, default_metrics, make_metric
from ipj_edge.metrics.classification import TopK
from ipj_edge.protocols import Array
from ipj_edge.runtime.model import Model
from ipj_edge.samples.data import Samples
from ipj_edge.stats import wilson_interval

_AT_ONCE = 256
_BINS = 10


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """How good the answers are.

    Attributes:
        accuracy: The first rate of correct answers among the metrics; None with a reason.
        scores: Those of all metrics asked for.
        exits: Share and accuracy of every exit; empty for a plain model.
        reliability: Confidence against accuracy; empty without class scores.
        warnings: What a reader has to know.
    """

    accuracy: Accuracy | None
    reason: str = ""
    scores: tuple[Score, ...] = ()
    exits: tuple[ExitRecord, ...] = ()
    reliability: tuple[ReliabilityBin, ...] = ()
    warnings: tuple[str, ...] = ()


def assess(model: Model, samples: Samples, names: Sequence[str] = ()) -> Quality:
    """Run all samples and return the scores of metrics; without names, of those that fit (`default_metrics`).

    Raises:
        DataError: labels or outputs are not what a metric that was asked for needs.
        ConfigError: no such metric.
    """
    metrics = [make_metric(name) for name in names]
    if samples.labels is None:
        return Quality(accuracy=None, reason="no labels were given (--data with labels)")
    exits, reliability = _Exits(model), _Reliability()
    bad = _run_all(model, samples, metrics, (exits, reliability))
    if not metrics:
        reason = "no output of this bundle holds logits or probabilities, or whole numbers shaped as the labels"
        return Quality(accuracy=None, reason=reason)
    scores = tuple(metric.score() for metric in metrics)
    warning = f"the answers to {bad} of {samples.count} samples hold values that are no finite numbers"
    rates = [score for score in scores if score.is_rate]
    return Quality(
        accuracy=_accuracy(rates[0]) if rates else None,
        reason="" if rates else f"{', '.join(score.metric for score in scores)} is no rate of correct answers",
        scores=scores,
        exits=exits.records(),
        reliability=reliability.bins(),
        warnings=(warning,) if bad else (),
    )


def _run_all(model: Model, samples: Samples, metrics: list[Metric], counters: tuple[_Exits, _Reliability]) -> int:
    """Run every sample; return how many answers hold something that is no finite number.

    Without metrics those are added that fit the first answers; where none does, nothing more is run.
    """
    manifest = model.manifest
    meanings = {spec.name: spec.meaning for spec in model.outputs}
    step = manifest.batch.max * (1 if manifest.batch.only_size else max(1, _AT_ONCE // manifest.batch.max))
    bad = 0
    for start in range(0, samples.count, step):
        feeds = samples.rows(manifest.inputs, start, start + step)
        result = model.run(feeds, copy=False)
        labels = np.asarray(samples.labels)[start : start + step]
        batch = Batch(result.outputs, labels, feeds, meanings)
        if not metrics:
            metrics += [make_metric(name) for name in default_metrics(batch)]
        if not metrics:
            return 0
        for metric in metrics:
            metric.add(batch)
        counters[0].add(batch, result.exit_indices)
        counters[1].add(batch)
        bad += _not_finite(batch)
    return bad


class _Exits:
    """Counts who left where, and whether they were right."""

    def __init__(self, model: Model) -> None:
        self._stages = model.manifest.stages if model.exit_counts else ()
        self._left = np.zeros((len(self._stages), 2), dtype=int)
        self._judged = False

    def add(self, batch: Batch, places: Array) -> None:
        if not self._stages:
            return
        right = np.zeros(len(places), dtype=bool)
        try:
            right = TopK(1).correct(batch.scores("accuracy by exit"), batch.labels)
            self._judged = True
        except DataError:
            self._judged = False
        self._left[:, 0] += np.bincount(places, minlength=len(self._stages))
        self._left[:, 1] += np.bincount(places, right, minlength=len(self._stages)).astype(int)

    def records(self) -> tuple[ExitRecord, ...]:
        total = int(self._left[:, 0].sum())
        if not total:
            return ()
        return tuple(
            ExitRecord(
                name=stage.name,
                share=left / total,
                accuracy=_share(right, left) if self._judged and left else None,
                macs=stage.macs,
            )
            for stage, (left, right) in zip(self._stages, self._left.tolist(), strict=True)
        )


class _Reliability:
    """Gathers confidence and correctness by tenths of the largest class probability."""

    def __init__(self) -> None:
        # Samples, summed confidence, right ones.
        self._bins = np.zeros((_BINS, 3))

    def add(self, batch: Batch) -> None:
        try:
            right = TopK(1).correct(batch.scores("reliability"), batch.labels)
            confidence = np.exp(batch.log_probabilities("reliability")).max(axis=1)
        except DataError:
            return
        known = np.isfinite(confidence)
        places = np.clip((confidence[known] * _BINS).astype(int), 0, _BINS - 1)
        for column, weights in enumerate((np.ones(len(places)), confidence[known], right[known])):
            self._bins[:, column] += np.bincount(places, weights, minlength=_BINS)

    def bins(self) -> tuple[ReliabilityBin, ...]:
        return tuple(
            ReliabilityBin(n=int(n), confidence=confidence / n, accuracy=right / n)
            for n, confidence, right in self._bins.tolist()
            if n
        )


def _share(right: int, n: int) -> Accuracy:
    interval = wilson_interval(right, n)
    return Accuracy(value=interval.value, low=interval.low, high=interval.high, n=n)


def _accuracy(score: Score) -> Accuracy | None:
    if score.value is None or score.low is None or score.high is None:
        return None
    return Accuracy(value=score.value, low=score.low, high=score.high, n=score.n, metric=score.metric)


def _not_finite(batch: Batch) -> int:
    values = batch.values()
    if values.dtype.kind != "f" or len(values) != len(batch.labels):
        return 0
    return int((~np.isfinite(values).reshape(len(values), -1).all(axis=1)).sum())
