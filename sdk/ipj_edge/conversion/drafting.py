"""What the manifest of a new bundle says, from the source, the request and what the converter made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ipj_edge.bundles.manifest import (
    SCHEMA_VERSION,
    BatchSpec,
    Manifest,
    ParityRecord,
    Requirements,
    SourceRecord,
    StageSpec,
)
from ipj_edge.conversion.plan.abilities import for_precision
from ipj_edge.conversion.plan.calibration import record_calibration
from ipj_edge.conversion.plan.prepared import Prepared
from ipj_edge.conversion.plan.reference import GOLDEN_SAMPLES, only_size, static_batch
from ipj_edge.plugins import load_target
from ipj_edge.protocols import Array, Source, StageFiles
from ipj_edge.runtime.agreement import ENOUGH_PLACES, INT8_AGREEMENT, holds_whole_numbers
from ipj_edge.runtime.golden import write_golden
from ipj_edge.runtime.parity import RELATIVE_L2
from ipj_edge.values import Precision, TensorSpec


def draft_manifest(
    prepared: Prepared, name: str, target: str, precision: Precision, files: StageFiles, folder: Path
) -> Manifest:
    """Return the manifest of a bundle that is not proven yet: without files, figures and versions."""
    request, source = prepared.request, prepared.source
    loosened = request.tolerance is not None
    return Manifest(
        schema_version=SCHEMA_VERSION,
        digest="",
        name=name,
        target=target,
        precision=precision,
        created_with={},
        source=SourceRecord(file=source.file, kind=source.kind, sha256=source.sha256),
        files=(),
        inputs=prepared.inputs,
        outputs=prepared.reference.outputs,
        stages=_stages(prepared, precision, files, folder),
        unsplit=_whole(prepared, precision, files, folder) if files.stages else None,
        batch=_batch(source, files, request.max_batch),
        calibration=None
        if prepared.calibration is None or precision != "int8"
        else record_calibration(prepared.calibration),
        parity=ParityRecord(
            verified_on="target",
            tolerance=request.tolerance if request.tolerance is not None else RELATIVE_L2[precision],
            loosened=loosened,
            seed=request.seed,
            outputs=(),
        ),
        requires=Requirements(
            engine=load_target(target).engine,
            engine_version="",
            isa=files.isa,
            opset=files.opset,
            providers=files.providers,
        ),
        labels=request.labels,
        preprocessing=request.preprocessing,
        golden_samples=len(_golden_rows(prepared)),
        notes=(*_size_notes(source), *source.notes, *prepared.notes, *files.notes),
        state=files.state,
        scheme=files.scheme,
        **_asked_for(prepared, precision),
    )


def _asked_for(prepared: Prepared, precision: Precision) -> dict[str, Any]:
    """Return the options that the manifest records as they were asked for, by field; others the converter reports."""
    options = for_precision(prepared.options, precision)
    recorded = set(Manifest.__struct_fields__) - set(StageFiles.__struct_fields__)
    return {name: getattr(options, name) for name in options.__struct_fields__ if name in recorded}


def _stages(prepared: Prepared, precision: Precision, files: StageFiles, folder: Path) -> tuple[StageSpec, ...]:
    """Return the stages by depth; a model that was not cut is its own only stage."""
    if not files.stages:
        return (_whole(prepared, precision, files, folder),)
    chosen = for_precision(prepared.options, precision).stage_precisions
    wanted = tuple(one for one in chosen if one != "auto") or (precision,) * len(files.stages)
    return tuple(
        StageSpec(
            name=cut.name,
            file=cut.file,
            takes=cut.takes,
            adds=cut.adds,
            exit_output=cut.exit_output,
            precision=stage_precision,
            macs=cut.macs,
            macs_reason=cut.macs_reason,
            parameters=cut.parameters,
            file_bytes=_engine_bytes(folder, cut.file),
            operators=cut.operators,
        )
        for cut, stage_precision in zip(files.stages, wanted, strict=True)
    )


def _whole(prepared: Prepared, precision: Precision, files: StageFiles, folder: Path) -> StageSpec:
    """Return the program that computes the whole model, or its last exit alone where it was cut."""
    counted = files.counted or prepared.counted
    return StageSpec(
        name="model" if not files.stages else "unsplit",
        file=files.file,
        takes=files.takes,
        adds=files.adds,
        exit_output=files.stages[-1].exit_output if files.stages else prepared.reference.outputs[0].name,
        precision=precision,
        macs=counted.macs,
        macs_reason=counted.reason,
        parameters=counted.parameters,
        file_bytes=_engine_bytes(folder, files.file),
        operators=files.operators,
        proxy_file=files.proxy_file,
        weights=files.weights,
    )


def _engine_bytes(folder: Path, file: str) -> int:
    """Return the size of an engine's main file and of what lies beside it under the same stem (its weights)."""
    main = folder / file
    return sum(path.stat().st_size for path in main.parent.iterdir() if path.stem == main.stem)


def _size_notes(source: Source) -> tuple[str, ...]:
    reason = only_size(source)
    return (f"one size only: {reason}",) if reason else ()


def _batch(source: Source, files: StageFiles, max_batch: int) -> BatchSpec:
    if all(spec.batch_axis is None for spec in source.inputs):
        return BatchSpec(static=None, probed=(1,), max=1, only_size=only_size(source))
    if files.static_batch is not None:
        size = files.static_batch
        return BatchSpec(static=size, probed=(size,), max=size, only_size=only_size(source))
    return BatchSpec(static=None, probed=tuple(sorted({1, min(2, max_batch), max_batch})), max=max_batch)


def _golden_rows(prepared: Prepared, agreeing: Array | None = None) -> Array:
    """Return which samples of the golden set are written: spread over it, or whole batches of a fixed size.

    Args:
        prepared: The source with its data.
        agreeing: Samples to choose among; None for all.
    """
    samples = prepared.reference.sets[_golden_set(prepared)]
    count = min(samples.count, GOLDEN_SAMPLES)
    step = static_batch(prepared.source.inputs)
    if step is not None and step > 1:
        # What a fixed batch answers may hang on the samples that are in it together.
        return np.arange(min(samples.count, max(step, GOLDEN_SAMPLES // step * step)))
    among = np.arange(samples.count) if agreeing is None or len(agreeing) < count else agreeing
    return among[np.linspace(0, len(among) - 1, count).round().astype(np.intp)]


def _golden_set(prepared: Prepared) -> str:
    return next(name for name in ("calibration", "data", "random") if name in prepared.reference.sets)


def write_golden_inputs(
    prepared: Prepared, folder: Path, proven: Mapping[str, Mapping[str, Array]] | None = None
) -> None:
    """Write golden inputs with the source's answers, taken from those already there.

    Args:
        prepared: The source with its data.
        folder: The bundle's folder.
        proven: What the bundle answered, by set and output, once it passed. Where it may miss some whole numbers, a
            device is asked for those that it got right here: of a few samples none may differ there.
    """
    name = _golden_set(prepared)
    rows = _golden_rows(prepared, None if proven is None else _agreeing(prepared, name, proven[name]))
    samples, answers = prepared.reference.sets[name].arrays, prepared.reference.answers[name]
    write_golden(
        folder, _picked(samples, prepared.source.inputs, rows), _picked(answers, prepared.source.outputs, rows)
    )


def _agreeing(prepared: Prepared, name: str, answers: Mapping[str, Array]) -> Array:
    """Return the samples of a set whose whole numbers agree with the source's as far as int8 has to."""
    samples, reference = prepared.reference.sets[name].count, prepared.reference.answers[name]
    agreeing = np.ones(samples, bool)
    for spec in prepared.source.outputs:
        want = reference[spec.name]
        if spec.batch_axis is not None and holds_whole_numbers(want):
            same = np.moveaxis(want == answers[spec.name], spec.batch_axis, 0).reshape(samples, -1)
            agreeing &= same.mean(axis=1) >= (INT8_AGREEMENT if same.shape[1] >= ENOUGH_PLACES else 1.0)
    return np.flatnonzero(agreeing)


def _picked(arrays: Mapping[str, Array], specs: Sequence[TensorSpec], rows: Array) -> dict[str, Array]:
    return {spec.name: arrays[spec.name][rows] if spec.batch_axis is not None else arrays[spec.name] for spec in specs}
