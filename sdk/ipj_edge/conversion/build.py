"""Build one bundle in a temporary folder and prove it in its target's own engine."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec
import numpy as np

import ipj_edge
from ipj_edge.bundle import record_files, write_manifest
from ipj_edge.conversion.calibration import record_calibration
from ipj_edge.conversion.plan import check_abilities, choose_converter, proving_target
from ipj_edge.conversion.prepared import Prepared
from ipj_edge.conversion.reference import GOLDEN_SAMPLES, spread
from ipj_edge.conversion.trial import TrialResult, run_trial
from ipj_edge.data import Samples
from ipj_edge.errors import (
    AccuracyGateError,
    ConfigError,
    ConversionError,
    DestinationError,
    IpjEdgeError,
    ParityError,
)
from ipj_edge.golden import write_golden
from ipj_edge.manifest import (
    SCHEMA_VERSION,
    BatchSpec,
    Manifest,
    OutputParity,
    ParityRecord,
    Requirements,
    SourceRecord,
    StageSpec,
)
from ipj_edge.metrics import top1_correct
from ipj_edge.parity import RELATIVE_L2, compare, source_steps
from ipj_edge.plugins import load_target
from ipj_edge.protocols import ConversionTask, Converter, Source, StageFiles
from ipj_edge.values import Precision

_LEAST_FREE_BYTES = 1 << 20


class Proven(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle that passed: its manifest, (source, bundle) accuracy of the gate, and warnings."""

    manifest: Manifest
    accuracy: tuple[float, float] | None
    warnings: tuple[str, ...]


def build(
    prepared: Prepared,
    name: str,
    target: str,
    precision: Precision,
    folder: Path,
    progress: Callable[[str], None],
) -> Proven:
    """Convert, run in a child, compare, gate, and leave a complete bundle in folder.

    Raises:
        ConversionError: any of it failed.
    """
    source = cast(Source, prepared.source)
    converter = choose_converter(source, target, precision)
    check_abilities(converter, prepared.request, source, precision)
    files = _convert(prepared, converter, target, precision, folder)
    draft = _draft(prepared, name, target, precision, files, folder)
    _write_golden(prepared, folder)
    write_manifest(folder, msgspec.structs.replace(draft, files=record_files(folder)))
    prover = proving_target(target)
    progress(f"{target} {precision}: proving it in {'its engine' if prover == target else prover}")
    with tempfile.TemporaryDirectory(prefix="ipj-edge-trial-") as scratch:
        sets = {**prepared.reference.sets, **_batch_probes(prepared, draft.batch)}
        trial = run_trial(folder, prover, sets, Path(scratch))
    figures = _parity(prepared, trial, precision, draft)
    accuracy = _gate(prepared, trial)
    manifest = msgspec.structs.replace(
        draft,
        files=record_files(folder, unreproducible=files.unreproducible),
        parity=msgspec.structs.replace(
            draft.parity, outputs=figures, verified_on="target" if prover == target else f"proxy:{prover}"
        ),
        created_with=_created_with(source, files, trial),
        requires=msgspec.structs.replace(draft.requires, engine_version=trial.effective[0].engine_version),
    )
    write_manifest(folder, manifest)
    return Proven(manifest=manifest, accuracy=accuracy, warnings=manifest.notes)


def _convert(prepared: Prepared, converter: Converter, target: str, precision: Precision, folder: Path) -> StageFiles:
    request = prepared.request
    calibration = prepared.calibration if precision == "int8" else None
    task = ConversionTask(
        source=prepared.source,
        target=target,
        precision=precision,
        calibration=None if calibration is None else calibration.arrays,
        into=folder,
        isa=request.isa,
        scheme=request.scheme or "static",
        keep_float=request.keep_float if precision != "fp32" else (),
        providers=request.providers,
        half_io=request.half_io and precision == "fp16",
        min_mapped=request.min_mapped,
    )
    try:
        return converter.convert(task)
    except OSError:
        raise
    except Exception as error:
        # Engines report a full disk in words of their own, or as a failed stream.
        if shutil.disk_usage(folder).free < _LEAST_FREE_BYTES:
            raise DestinationError(
                f"cannot write {folder.parent.parent}: the disk is full; nothing was published"
            ) from error
        if isinstance(error, IpjEdgeError):
            raise
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConversionError(f"'{converter.name}' failed: {type(error).__name__}: {first[:300]}") from error


def _draft(
    prepared: Prepared, name: str, target: str, precision: Precision, files: StageFiles, folder: Path
) -> Manifest:
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
        stages=(_stage(prepared, precision, files, folder),),
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
            engine=load_target(target).engine, engine_version="", isa=files.isa, opset=files.opset,
            providers=files.providers,
        ),
        labels=request.labels,
        preprocessing=request.preprocessing,
        golden_samples=_golden(prepared).count,
        notes=(*source.notes, *files.notes),
        state=files.state,
        scheme=files.scheme,
        keep_float=request.keep_float if precision != "fp32" else (),
    )  # fmt: skip


def _stage(prepared: Prepared, precision: Precision, files: StageFiles, folder: Path) -> StageSpec:
    return StageSpec(
        name="model",
        file=files.file,
        takes=files.takes,
        adds=files.adds,
        exit_output=prepared.reference.outputs[0].name,
        precision=precision,
        macs=prepared.counted.macs,
        macs_reason=prepared.counted.reason,
        parameters=prepared.counted.parameters,
        file_bytes=sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        operators=files.operators,
        proxy_file=files.proxy_file,
        weights=files.weights,
    )


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


def _write_golden(prepared: Prepared, folder: Path) -> None:
    """Golden outputs are taken from the answers already there: the rows that `spread` picks."""
    name = _golden_set(prepared)
    whole, golden = prepared.reference.sets[name], _golden(prepared)
    chosen = np.linspace(0, whole.count - 1, golden.count).round().astype(np.intp)
    batched = {spec.name for spec in prepared.source.outputs if spec.batch_axis is not None}
    outputs = {
        key: value[chosen] if key in batched and golden.count < whole.count else value
        for key, value in prepared.reference.answers[name].items()
    }
    write_golden(folder, golden.arrays, outputs)


def _batch_probes(prepared: Prepared, batch: BatchSpec) -> dict[str, Samples]:
    """Sets of every batch size to probe, cut from the random inputs."""
    drawn, specs = prepared.reference.sets["random"], prepared.source.inputs
    return {
        f"batch {size}": Samples(arrays=drawn.rows(specs, 0, size), labels=None, count=size)
        for size in batch.probed
        if batch.static is None
    }


def _parity(prepared: Prepared, trial: TrialResult, precision: Precision, draft: Manifest) -> tuple[OutputParity, ...]:
    """Judge every set, the batch probes included.

    Raises:
        ParityError: a check failed.
    """
    batch = draft.batch
    figures: list[OutputParity] = []
    failures: list[str] = []
    expected = dict(prepared.reference.answers)
    for size in batch.probed if batch.static is None else ():
        batched = {spec.name for spec in prepared.source.outputs if spec.batch_axis is not None}
        whole = prepared.reference.answers["random"]
        expected[f"batch {size}"] = {key: value[:size] if key in batched else value for key, value in whole.items()}
    for name, reference in expected.items():
        # Outside the calibrated range an int8 model may differ in size; it may not be dead or NaN.
        judged = draft.scheme != "static" or name in ("calibration", "data")
        compared = compare(
            prepared.reference.outputs, reference, trial.answers[name],
            precision=precision, inputs=name, tolerance=prepared.request.tolerance, judge_size=judged,
            steps=source_steps(draft),
        )  # fmt: skip
        figures += [comparison.figures for comparison in compared if not name.startswith("batch ")]
        failures += [failure for comparison in compared for failure in comparison.failures]
    if failures:
        raise ParityError(tuple(failures))
    return tuple(figures)


def _gate(prepared: Prepared, trial: TrialResult) -> tuple[float, float] | None:
    """Measure the saved bundle's accuracy in its own engine against the source's.

    Raises:
        AccuracyGateError: it lost more than allowed.
        ConfigError: no output holds scores of classes.
    """
    data, allowed = prepared.data, prepared.request.max_accuracy_drop
    scored = [spec.name for spec in prepared.reference.outputs if spec.meaning in ("logits", "probabilities")]
    if data is None or data.labels is None or not scored:
        if allowed is not None:
            raise ConfigError(
                "--max-accuracy-drop needs an output that holds logits or probabilities (--output NAME:logits)"
            )
        return None
    source, bundle = (
        top1_correct(answers[scored[0]], data.labels) / data.count
        for answers in (prepared.reference.answers["data"], trial.answers["data"])
    )
    if allowed is not None and source - bundle > allowed + 1e-12:
        raise AccuracyGateError(source, bundle, allowed)
    return source, bundle


def _created_with(source: Source, files: StageFiles, trial: TrialResult) -> dict[str, str]:
    engine = {effective.engine: effective.engine_version for effective in trial.effective}
    tools = {
        **source.versions,
        **files.versions,
        **engine,
        "ipj-edge": ipj_edge.__version__,
        "numpy": np.__version__,
    }
    return dict(sorted(tools.items()))
