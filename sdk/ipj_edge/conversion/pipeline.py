"""The pipeline: plan → calibrate → convert (plugin) → load and parity in a child → accuracy gate → publish."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import msgspec

from ipj_edge.conversion.build import build
from ipj_edge.conversion.calibration import check_calibration, range_warnings
from ipj_edge.conversion.inputs import random_samples
from ipj_edge.conversion.plan import check_target, choose_opener, choose_precisions
from ipj_edge.conversion.prepared import Prepared
from ipj_edge.conversion.publish import check_free, publish, workspace
from ipj_edge.conversion.reference import (
    GOLDEN_SAMPLES,
    PARITY_SAMPLES,
    Reference,
    answer,
    decide_meanings,
    spread,
    whole_batches,
)
from ipj_edge.conversion.request import ConvertRequest, Outcome
from ipj_edge.conversion.stage_choice import with_stage_precisions
from ipj_edge.data import Samples, load_samples
from ipj_edge.errors import ConfigError, DataError, IpjEdgeError
from ipj_edge.manifest import SUFFIX, Bundle
from ipj_edge.plugins import load_target
from ipj_edge.protocols import Source, SourceRequest
from ipj_edge.values import Precision, Preprocessing

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
    for target in request.targets:
        load_target(target)
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
        )
    )


def _prepare(asked: ConvertRequest, source: Source, progress: Progress) -> Prepared:
    asked = _with_int8(asked)
    _check_request(asked, source)
    request = msgspec.structs.replace(asked, preprocessing=_named_preprocessing(asked, source))
    calibration = _load(request.calibration, request, source)
    if calibration is not None:
        check_calibration(calibration, source.inputs, str(request.calibration))
    data = _load(request.data, request, source)
    if request.max_accuracy_drop is not None and (data is None or data.labels is None):
        raise ConfigError("--max-accuracy-drop needs --data with labels")
    progress("running the source: the reference for parity")
    reference = _reference(request, source, calibration, data)
    warnings = range_warnings(calibration, data) if calibration is not None and data is not None else ()
    return Prepared(
        request=request, source=source, calibration=calibration, data=data, reference=reference,
        counted=source.count(), exits=_exits(request, source), warnings=warnings,
    )  # fmt: skip


def _with_int8(request: ConvertRequest) -> ConvertRequest:
    """Asking how to quantize, and for no precision, is asking for int8."""
    if request.scheme is None or request.precisions:
        return request
    return msgspec.structs.replace(request, precisions=("int8",))


def _check_request(request: ConvertRequest, source: Source) -> None:
    dynamic = request.scheme == "dynamic"
    if dynamic and request.calibration is not None:
        raise ConfigError(
            "--calibration has no effect on --quantize dynamic, which finds its ranges in each inference: "
            "leave it out, or give the samples as --data to prove the bundle on them"
        )
    needs_ranges = "int8" in request.precisions and source.precision != "int8" and not dynamic
    if needs_ranges and request.calibration is None:
        raise DataError(
            "static int8 needs a calibration set: give --calibration with real inputs of the model "
            "(there is no default and no random data)"
        )


def _named_preprocessing(request: ConvertRequest, source: Source) -> dict[str, Preprocessing]:
    """Return preprocessing by the names of the source's inputs."""
    names = [spec.name for spec in source.inputs]
    if set(request.preprocessing) == {""} and len(names) == 1:
        return {names[0]: request.preprocessing[""]}
    if "" in request.preprocessing:
        raise ConfigError(f"--preprocess: the model has several inputs; make a table for one, e.g. [{names[0]}]")
    strangers = set(request.preprocessing) - set(names)
    if strangers:
        raise ConfigError(f"--preprocess names {', '.join(sorted(strangers))}; the model has {', '.join(names)}")
    return request.preprocessing


def _exits(request: ConvertRequest, source: Source) -> tuple[str, ...]:
    """Return the outputs that are exits: those the user named, else those the source itself knows of."""
    outputs = tuple(spec.name for spec in source.outputs)
    if request.split_at == ("exits",) and "exits" not in outputs:
        return outputs
    return request.split_at or tuple(getattr(source, "exits", ()))


def _load(location: str | None, request: ConvertRequest, source: Source) -> Samples | None:
    if location is None:
        return None
    samples = load_samples(location, source.inputs, request.preprocessing, request.labels)
    return whole_batches(samples, source.inputs)


def _reference(request: ConvertRequest, source: Source, calibration: Samples | None, data: Samples | None) -> Reference:
    real = calibration if calibration is not None else data
    count = max(request.max_batch, 2 * GOLDEN_SAMPLES)
    drawn = random_samples(source.inputs, count, request.seed, real)
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
        if samples is not None and samples.labels is not None and samples.labels.dtype.kind in "iu":
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
