"""What the manifest of a new bundle says, from the source, the request and what the converter made."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np

from ipj_edge.conversion.calibration import record_calibration
from ipj_edge.conversion.prepared import Prepared
from ipj_edge.conversion.reference import GOLDEN_SAMPLES, spread
from ipj_edge.data import Samples
from ipj_edge.golden import write_golden
from ipj_edge.manifest import (
    SCHEMA_VERSION,
    BatchSpec,
    Manifest,
    ParityRecord,
    Requirements,
    SourceRecord,
    StageSpec,
)
from ipj_edge.parity import RELATIVE_L2
from ipj_edge.plugins import load_target
from ipj_edge.protocols import Source, StageFiles
from ipj_edge.values import Precision


def draft_manifest(
    prepared: Prepared, name: str, target: str, precision: Precision, files: StageFiles, folder: Path
) -> Manifest:
    """Return the manifest of a bundle that is not proven yet: without files, figures and versions."""
    request, source = prepared.request, cast(Source, prepared.source)
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
        inputs=source.inputs,
        outputs=prepared.reference.outputs,
        stages=_stages(prepared, precision, files, folder),
        unsplit=_whole(prepared, precision, files, folder) if files.stages else None,
        batch=_batch(files, request.max_batch),
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
        golden_samples=_golden(prepared).count,
        notes=(*source.notes, *files.notes),
        state=files.state,
        scheme=files.scheme,
        keep_float=request.keep_float if precision != "fp32" else (),
    )


def _stages(prepared: Prepared, precision: Precision, files: StageFiles, folder: Path) -> tuple[StageSpec, ...]:
    """Return the stages by depth; a model that was not cut is its own only stage."""
    if not files.stages:
        return (_whole(prepared, precision, files, folder),)
    wanted = prepared.stage_precisions if precision == "int8" and prepared.stage_precisions else ()
    wanted = wanted or (precision,) * len(files.stages)
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


def _batch(files: StageFiles, max_batch: int) -> BatchSpec:
    if files.static_batch is not None:
        return BatchSpec(static=files.static_batch, probed=(files.static_batch,), max=files.static_batch)
    return BatchSpec(static=None, probed=tuple(sorted({1, 2, max_batch})), max=max_batch)


def _golden(prepared: Prepared) -> Samples:
    reference, specs = prepared.reference, prepared.source.inputs
    static = [spec.shape[0] for spec in specs if spec.batch_axis == 0 and isinstance(spec.shape[0], int)]
    count = max(static[0], GOLDEN_SAMPLES // static[0] * static[0]) if static else GOLDEN_SAMPLES
    return spread(reference.sets[_golden_set(prepared)], specs, count)


def _golden_set(prepared: Prepared) -> str:
    return next(name for name in ("calibration", "data", "random") if name in prepared.reference.sets)


def write_golden_inputs(prepared: Prepared, folder: Path) -> None:
    """Write golden inputs with the source's answers, taken from those already there: the rows that `spread` picks."""
    name = _golden_set(prepared)
    whole, golden = prepared.reference.sets[name], _golden(prepared)
    chosen = np.linspace(0, whole.count - 1, golden.count).round().astype(np.intp)
    batched = {spec.name for spec in prepared.source.outputs if spec.batch_axis is not None}
    outputs = {
        key: value[chosen] if key in batched and golden.count < whole.count else value
        for key, value in prepared.reference.answers[name].items()
    }
    write_golden(folder, golden.arrays, outputs)
