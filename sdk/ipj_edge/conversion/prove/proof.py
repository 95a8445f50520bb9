"""Whether a built bundle answers as its source does, and as accurately: judged on what its own engine answered."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ipj_edge.bundles.manifest import BatchSpec, Manifest, OutputParity
from ipj_edge.conversion.plan.prepared import Prepared
from ipj_edge.conversion.prove.trial import TrialResult
from ipj_edge.errors import AccuracyGateError, ConfigError, DataError, ParityError
from ipj_edge.metrics import Batch, default_metrics, make_metric
from ipj_edge.metrics.score import SCORES
from ipj_edge.runtime.agreement import ENOUGH_PLACES, holds_whole_numbers
from ipj_edge.runtime.parity import REAL_INPUTS, allowances_of, compare
from ipj_edge.samples.data import Samples
from ipj_edge.values import Precision

CHAIN_RELATIVE = 1e-5


def batch_probes(prepared: Prepared, batch: BatchSpec) -> dict[str, Samples]:
    """Return a set of every batch size to probe, cut from the random inputs."""
    drawn, specs = prepared.reference.sets["random"], prepared.source.inputs
    return {
        _probe_name(size): Samples(arrays=drawn.rows(specs, 0, size), labels=None, count=size)
        for size in batch.probed
        if batch.static is None
    }


def check_real_inputs(prepared: Prepared, precision: Precision) -> None:
    """Refuse int8 for a model that answers with whole numbers where no real input can show how many are right.

    Raises:
        DataError: names the outputs and the remedy.
    """
    quantized = precision == "int8" and prepared.source.precision != "int8"
    answers = prepared.reference.answers
    names = [name for name, value in answers["random"].items() if holds_whole_numbers(value)]
    if quantized and names and not set(REAL_INPUTS) & set(answers):
        raise DataError(
            f"int8 is judged by how many whole numbers of {', '.join(map(repr, names))} stay the same on real inputs: "
            f"give --data with {ENOUGH_PLACES} samples or more"
        )


class Judged(NamedTuple):
    """Figures of all outputs on all inputs, and what the user should know of early exits."""

    figures: tuple[OutputParity, ...]
    notes: tuple[str, ...]


def judge(prepared: Prepared, trial: TrialResult, draft: Manifest) -> Judged:
    """Judge every set of inputs, every batch size, and the stages against the unsplit program.

    Raises:
        ParityError: a check failed.
    """
    figures: list[OutputParity] = []
    failures: list[str] = []
    excused: list[str] = []
    remedies: list[str] = []
    for name, reference in prepared.reference.answers.items():
        compared = compare(
            prepared.reference.outputs, reference, trial.answers[name],
            precision=draft.precision, inputs=name, tolerance=prepared.request.tolerance,
            # Outside the calibrated range a statically quantized model may differ from its source.
            judge_values=draft.scheme != "static" or name in ("calibration", "data"),
            allowances=allowances_of(draft),
        )  # fmt: skip
        excused += [line for comparison in compared for line in comparison.excused]
        figures += [comparison.figures for comparison in compared]
        failures += [failure for comparison in compared for failure in comparison.failures]
        remedies += [remedy for comparison in compared for remedy in comparison.remedies]
    failures += _batch_failures(prepared, trial, draft)
    failures += _chain_failures(trial, draft)
    if failures:
        raise ParityError(tuple(failures), tuple(dict.fromkeys(remedies)))
    return Judged(tuple(figures), tuple(f"{line}; tune the exits on this bundle's own answers" for line in excused))


def _batch_failures(prepared: Prepared, trial: TrialResult, draft: Manifest) -> list[str]:
    """Compare every probed batch size with the bundle's own answers to the same samples in the whole set."""
    batched = {spec.name for spec in prepared.source.outputs if spec.batch_axis is not None}
    failures: list[str] = []
    for size in draft.batch.probed if draft.batch.static is None else ():
        name = _probe_name(size)
        own = {key: value[:size] if key in batched else value for key, value in trial.answers["random"].items()}
        compared = compare(
            prepared.reference.outputs, own, trial.answers[name],
            precision=draft.precision, inputs=name, tolerance=prepared.request.tolerance,
            allowances=allowances_of(draft),
        )  # fmt: skip
        failures += [failure for comparison in compared for failure in comparison.failures]
    return failures


def _chain_failures(trial: TrialResult, draft: Manifest) -> list[str]:
    """Stages hold the same numbers as the whole: their answers are equal, or one step of rounding apart."""
    if trial.chain_max_abs is None or trial.chain_max_abs == 0.0:
        return []
    last = draft.stages[-1].exit_output
    port = next(port for port in draft.stages[-1].adds if port.name == last)
    peak = max(float(np.abs(outputs[str(last)]).max()) for outputs in trial.answers.values())
    step = port.quantization.scale if port.quantization is not None else CHAIN_RELATIVE * peak
    if trial.chain_max_abs <= step:
        return []
    return [f"the stages answer differently from the unsplit program, by {trial.chain_max_abs:.3g} in '{last}'"]


def gate(prepared: Prepared, trial: TrialResult, draft: Manifest) -> tuple[float, float] | None:
    """Measure the saved bundle's accuracy in its own engine against the source's, at the last exit.

    Accuracy is top-1 of scores or class numbers, and pixel accuracy of label maps.

    Raises:
        AccuracyGateError: it lost more than allowed.
        ConfigError: no output holds scores of classes, class numbers or label maps that fit the labels.
        DataError: labels do not fit the scores.
    """
    data, allowed = prepared.data, prepared.request.max_accuracy_drop
    judged = None if data is None or data.labels is None else _accuracies(prepared, trial, draft, data)
    if judged is None:
        if allowed is not None:
            raise ConfigError(
                "--max-accuracy-drop needs an output that holds logits or probabilities (--output NAME:logits), or "
                "whole numbers shaped as the labels: class numbers or label maps"
            )
        return None
    source, bundle = judged
    if allowed is not None and source - bundle > allowed + 1e-12:
        raise AccuracyGateError(source, bundle, allowed)
    return source, bundle


def _accuracies(prepared: Prepared, trial: TrialResult, draft: Manifest, data: Samples) -> tuple[float, float] | None:
    """Return accuracy of source and bundle on labelled data, or None where no metric fits."""
    meanings = {spec.name: spec.meaning for spec in prepared.reference.outputs}
    last = draft.stages[-1].exit_output
    if len(draft.stages) > 1 and meanings.get(str(last)) in SCORES:
        meanings = {str(last): meanings[str(last)]}
    source, bundle = (
        Batch({name: answers[name] for name in meanings}, np.asarray(data.labels), data.arrays, meanings)
        for answers in (prepared.reference.answers["data"], trial.answers["data"])
    )
    fitting = default_metrics(source)
    if not fitting:
        return None
    figures = []
    for batch in (source, bundle):
        metric = make_metric(fitting[0])
        metric.add(batch)
        figures.append(metric.score().value)
    return None if figures[0] is None or figures[1] is None else (figures[0], figures[1])


def _probe_name(size: int) -> str:
    return f"batch {size}"
