"""Build one bundle in a temporary folder and prove it in its target's own engine."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

import ipj_edge
from ipj_edge.bundles.bundle import record_files, write_manifest
from ipj_edge.bundles.manifest import (
    Manifest,
)
from ipj_edge.conversion.drafting import draft_manifest, write_golden_inputs
from ipj_edge.conversion.plan.abilities import check_abilities, for_precision
from ipj_edge.conversion.plan.plan import choose_converter, proving_target
from ipj_edge.conversion.plan.prepared import Prepared
from ipj_edge.conversion.plan.ranges import trained_ranges
from ipj_edge.conversion.prove.proof import batch_probes, check_real_inputs, gate, judge
from ipj_edge.conversion.prove.trial import TrialResult, run_trial
from ipj_edge.conversion.publish import FULL
from ipj_edge.errors import (
    ConversionError,
    DestinationError,
    IpjEdgeError,
    typed_line,
)
from ipj_edge.protocols import ConversionTask, Converter, Source, StageFiles
from ipj_edge.values import ConversionOptions, Precision

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
    source = prepared.source
    converter = choose_converter(source, target, precision)
    check_abilities(converter, prepared.options, source, precision)
    check_real_inputs(prepared, precision)
    files = _convert(prepared, converter, target, precision, folder)
    draft = draft_manifest(prepared, name, target, precision, files, folder)
    write_golden_inputs(prepared, folder)
    write_manifest(folder, msgspec.structs.replace(draft, files=record_files(folder)))
    prover = proving_target(target)
    progress(f"{target} {precision}: proving it in {'its engine' if prover == target else prover}")
    with tempfile.TemporaryDirectory(prefix="ipj-edge-trial-") as scratch:
        sets = {**prepared.reference.sets, **batch_probes(prepared, draft.batch)}
        trial = run_trial(folder, prover, sets, Path(scratch))
    judged = judge(prepared, trial, draft)
    accuracy = gate(prepared, trial, draft)
    write_golden_inputs(prepared, folder, trial.answers)
    manifest = msgspec.structs.replace(
        draft,
        files=record_files(folder, unreproducible=files.unreproducible),
        parity=msgspec.structs.replace(
            draft.parity,
            outputs=judged.figures,
            chain_max_abs=trial.chain_max_abs,
            verified_on="target" if prover == target else f"proxy:{prover}",
        ),
        created_with=_created_with(source, files, trial),
        notes=(*draft.notes, *judged.notes),
        requires=msgspec.structs.replace(draft.requires, engine_version=trial.effective[0].engine_version),
    )
    write_manifest(folder, manifest)
    return Proven(manifest=manifest, accuracy=accuracy, warnings=manifest.notes)


def _convert(prepared: Prepared, converter: Converter, target: str, precision: Precision, folder: Path) -> StageFiles:
    calibration = prepared.calibration if precision == "int8" else None
    task = ConversionTask(
        source=prepared.source,
        target=target,
        precision=precision,
        calibration=None if calibration is None else calibration.arrays,
        into=folder,
        options=_options(prepared, precision),
    )
    try:
        return converter.convert(task)
    except Exception as error:
        if isinstance(error, OSError) and _is_about(error, folder):
            raise
        # Engines report a full disk in words of their own, or as a failed stream.
        if shutil.disk_usage(folder).free < _LEAST_FREE_BYTES:
            raise DestinationError(
                f"cannot write {folder.parent.parent}: the disk is full; nothing was published"
            ) from error
        if isinstance(error, IpjEdgeError):
            raise
        raise ConversionError(f"'{converter.name}' failed: {typed_line(error)}") from error


def _options(prepared: Prepared, precision: Precision) -> ConversionOptions:
    """Return what a converter is asked for: options that mean something here, trained ranges found."""
    options = for_precision(prepared.options, precision)
    return msgspec.structs.replace(options, ranges=trained_ranges(prepared)) if precision == "int8" else options


def _is_about(error: OSError, folder: Path) -> bool:
    """Say whether the place a bundle is built in is at fault, and not a file or a program of the converter's own."""
    named = error.filename is not None and str(error.filename).startswith(str(folder.parent))
    return named or error.errno in FULL


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
