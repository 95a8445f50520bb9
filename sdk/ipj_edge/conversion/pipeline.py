"""The pipeline: plan → calibrate → convert (plugin) → load and parity in a child → accuracy gate → publish."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import monotonic

import msgspec

from ipj_edge.bundles.bundle import open_bundle
from ipj_edge.bundles.manifest import SUFFIX, Bundle
from ipj_edge.bundles.signature import read_private_key, sign_bundle
from ipj_edge.conversion.build import build
from ipj_edge.conversion.plan.calibration import check_calibration, check_whole_numbers, range_warnings
from ipj_edge.conversion.plan.inputs import random_samples
from ipj_edge.conversion.plan.integer_ranges import with_integer_ranges
from ipj_edge.conversion.plan.plan import check_target, choose_opener, choose_precisions
from ipj_edge.conversion.plan.prepared import Prepared
from ipj_edge.conversion.plan.reference import (
    PARITY_SAMPLES,
    Reference,
    answer,
    check_unbatched_outputs,
    decide_meanings,
    drawn_count,
    only_size,
    spread,
    whole_batches,
)
from ipj_edge.conversion.plan.request import ConvertRequest, Outcome
from ipj_edge.conversion.plan.request_checks import check_labels, check_request, named_preprocessing, tidied
from ipj_edge.conversion.publish import check_free, publish, workspace
from ipj_edge.conversion.stage_choice import with_stage_precisions
from ipj_edge.errors import ConfigError, DataError, IpjEdgeError
from ipj_edge.plugins import load_target
from ipj_edge.protocols import Source, SourceRequest, StagedSource
from ipj_edge.samples.data import Samples, arrays_given, load_samples
from ipj_edge.values import ConversionOptions, Precision, TensorSpec

Progress = Callable[[str], None]


def convert(request: ConvertRequest, *, progress: Progress = lambda _text: None) -> tuple[Outcome, ...]:
    """Convert a model for every target and precision asked for, prove each bundle and publish it.

    Targets are independent: what passes is published, the rest is reported in its outcome.

    Args:
        request: What to convert, for which targets, proven on what.
        progress: Called with one line a step.

    Raises:
        IpjEdgeError: nothing could be tried at all: unknown target, unusable source or data, missing extra.
    """
    request = tidied(request)
    for target in request.targets:
        load_target(target)
    if request.sign is not None:
        read_private_key(request.sign)
    with tempfile.TemporaryDirectory(prefix="ipj-edge-") as folder:
        progress(f"opening {request.source}")
        source = _open_source(request, Path(folder))
        prepared = _prepare(request, source, progress)
        return tuple(_outcomes(prepared, progress))


def _open_source(request: ConvertRequest, workdir: Path) -> Source:
    opener = choose_opener(request.source)
    return opener.open(
        SourceRequest(
            location=request.source,
            weights=request.weights,
            inputs=request.inputs,
            output_names=request.output_names,
            workdir=workdir,
            max_batch=request.max_batch,
            examples=arrays_given((request.calibration, request.data)),
        )
    )


def _prepare(asked: ConvertRequest, source: Source, progress: Progress) -> Prepared:
    check_request(asked, source)
    request = msgspec.structs.replace(asked, preprocessing=named_preprocessing(asked, source))
    calibration = _load(request.calibration, request, source)
    data = _load(request.data, request, source)
    real = [samples for samples in (calibration, data) if samples is not None]
    inputs, notes = with_integer_ranges(source.inputs, _ranged(request.inputs), real)
    if calibration is not None:
        check_calibration(calibration, inputs, str(request.calibration))
    if data is not None:
        check_whole_numbers(data, inputs, str(request.data))
    if request.max_accuracy_drop is not None and (data is None or data.labels is None):
        raise ConfigError("--max-accuracy-drop needs --data with labels")
    progress("running the source: the reference for parity")
    reference = _reference(request, source, inputs, calibration, data)
    check_labels(request.labels, reference.outputs)
    warnings = range_warnings(calibration, data) if calibration is not None and data is not None else ()
    return Prepared(
        request=request, source=source, inputs=inputs, calibration=calibration, data=data, reference=reference,
        counted=source.count(), options=_options(request, source), warnings=warnings, notes=notes,
    )  # fmt: skip


def _options(request: ConvertRequest, source: Source) -> ConversionOptions:
    """Return the options with the outputs that are exits: those the user named, else those the source knows of.

    Raises:
        ConfigError: there are exits, and no samples that could leave at them.
    """
    outputs, exits = tuple(spec.name for spec in source.outputs), request.options.split_at
    if exits == ("exits",) and "exits" not in outputs:
        exits = outputs
    exits = exits or (source.exits if isinstance(source, StagedSource) else ())
    if exits and all(spec.batch_axis is None for spec in source.inputs):
        raise ConfigError(f"samples leave at exits one by one, and this model has none: {only_size(source)}")
    return msgspec.structs.replace(request.options, split_at=exits)


def _load(location: str | None, request: ConvertRequest, source: Source) -> Samples | None:
    if location is None:
        return None
    try:
        samples = load_samples(location, source.inputs, request.preprocessing, request.labels)
    except DataError as error:
        if not only_size(source):
            raise
        raise DataError(f"{error} (one size only: {only_size(source)})") from error
    return whole_batches(samples, source.inputs)


def _ranged(inputs: Sequence[TensorSpec]) -> Iterator[str]:
    return (spec.name for spec in inputs if spec.value_range is not None)


def _reference(
    request: ConvertRequest,
    source: Source,
    inputs: Sequence[TensorSpec],
    calibration: Samples | None,
    data: Samples | None,
) -> Reference:
    real = calibration if calibration is not None else data
    drawn = random_samples(inputs, drawn_count(inputs, request.max_batch), request.seed, real)
    check_unbatched_outputs(source, drawn, request.max_batch)
    sets = {"random": whole_batches(drawn, source.inputs)}
    if calibration is not None:
        sets["calibration"] = whole_batches(spread(calibration, source.inputs, PARITY_SAMPLES), source.inputs)
    if data is not None:
        sets["data"] = data
    answers = {name: answer(source, samples, request.max_batch) for name, samples in sets.items()}
    outputs = decide_meanings(source.outputs, answers["random"], request.meanings, _classes(request, data, calibration))
    return Reference(sets=sets, answers=answers, outputs=outputs)


def _classes(request: ConvertRequest, data: Samples | None, calibration: Samples | None) -> int | None:
    if request.labels:
        return len(request.labels)
    for samples in (data, calibration):
        if (
            samples is not None
            and samples.labels is not None
            and samples.labels.dtype.kind in "iu"
            and samples.labels.ndim == 1
        ):
            return int(samples.labels.max()) + 1
    return None


def _outcomes(prepared: Prepared, progress: Progress) -> Iterator[Outcome]:
    request = prepared.request
    for name in request.targets:
        try:
            precisions = choose_precisions(prepared.source, check_target(name), request.precisions)
        except IpjEdgeError as error:
            wanted = request.precisions or (prepared.source.precision,)
            yield from (Outcome(name, precision, seconds=0.0, error=error) for precision in wanted)
            continue
        for precision in precisions:
            progress(f"{name} {precision}: converting")
            yield _one(prepared, name, precision, progress)


def _one(prepared: Prepared, target: str, precision: Precision, progress: Progress) -> Outcome:
    """Build, prove and publish one bundle; whatever we raised on the way becomes its outcome."""
    start = monotonic()
    request = prepared.request
    name = request.name or prepared.source.name
    destination = request.into / f"{name}.{target}.{precision}{SUFFIX}"
    try:
        check_free(destination, force=request.force)
        with workspace(destination) as folder:
            chosen = with_stage_precisions(prepared, target, progress) if precision == "int8" else prepared
            proven = build(chosen, name, target, precision, folder, progress)
            if request.sign is not None:
                sign_bundle(
                    folder, open_bundle(folder, check_files=False).manifest.digest, read_private_key(request.sign)
                )
            publish(folder, destination, force=request.force)
    except IpjEdgeError as error:
        return Outcome(target, precision, seconds=monotonic() - start, error=error)
    return Outcome(
        target,
        precision,
        seconds=monotonic() - start,
        bundle=Bundle(path=destination, manifest=proven.manifest),
        accuracy=proven.accuracy,
        warnings=(*prepared.warnings, *proven.warnings),
    )
