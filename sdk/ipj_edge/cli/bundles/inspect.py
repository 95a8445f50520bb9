"""``ipj-edge inspect``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ipj_edge.bundles.manifest import Bundle, Manifest, OutputParity, StageSpec
    from ipj_edge.values import Port, TensorSpec


@click.command("inspect")
@click.argument("bundle", type=click.Path())
@click.option("--operators", is_flag=True, help="List every operator of a model file, not only how many of each.")
@click.option("--json", "json_path", metavar="FILE", help="Write the manifest, or the report, as JSON; - is stdout.")
def command(bundle: str, operators: bool, json_path: str | None) -> None:
    """Show what a bundle says of itself: inputs, outputs, scales, stages, MACs, sizes, parity.

    BUNDLE may also be a .tflite, .onnx or .xml file, which is read and not run.
    """
    from ipj_edge.bundles.bundle import open_bundle
    from ipj_edge.cli.printing import console as _console
    from ipj_edge.cli.printing import files as _files

    _console.check_json(json_path)
    report = _files.inspect_file(Path(bundle))
    if report is not None:
        if json_path != "-":
            _files.print_report(report, operators=operators)
        if json_path is not None:
            _console.write_json(report, json_path)
        return
    opened = open_bundle(bundle)
    if json_path != "-":
        _print(opened)
    if json_path is not None:
        _console.write_json(opened.manifest, json_path)


def _print(bundle: Bundle) -> None:
    from ipj_edge.cli.printing import console as _console
    from ipj_edge.cli.printing import files as _files

    manifest = bundle.manifest
    _console.say(
        f"{manifest.name} for {manifest.target}, {manifest.precision}, schema version {manifest.schema_version}"
    )
    _console.say(f"source: {manifest.source.file} ({manifest.source.kind}), sha256 {manifest.source.sha256[:16]}…")
    _console.say("made with: " + ", ".join(f"{name} {version}" for name, version in manifest.created_with.items()))
    _say_requirements(manifest)
    _print_tensors(manifest)
    for stage in (*manifest.stages, *filter(None, (manifest.unsplit,))):
        _print_stage(stage)
    _files.print_state(manifest.state)
    _print_proof(manifest)
    _print_device(bundle)
    rows = [
        (
            record.path,
            _console.bytes_text(record.size_bytes),
            record.sha256[:16] + "…",
            "yes" if record.reproducible else "no",
        )
        for record in manifest.files
    ]
    _console.table(("file", "size", "sha256", "reproducible"), rows, right=("size",))
    for note in manifest.notes:
        _console.say(f"note: {note}")


def _print_device(bundle: Bundle) -> None:
    """Say where operators run on the device, and whether it was ever proven there."""
    from ipj_edge.bundles.device_proof import missing_proof, read_proof
    from ipj_edge.bundles.placement import read_placement
    from ipj_edge.cli.printing import console as _console
    from ipj_edge.cli.printing import files as _files

    placement = read_placement(bundle.path)
    if placement is not None:
        _files.print_placement(placement)
    proof = read_proof(bundle)
    if proof is not None:
        _console.say(f"verified on the device '{proof.machine}' with {proof.engine}, {proof.utc}")
    unproven = missing_proof(bundle)
    if unproven:
        _console.warn(unproven)


def _say_requirements(manifest: Manifest) -> None:
    from ipj_edge.cli.printing import console as _console

    requires, batch = manifest.requires, manifest.batch
    extras = [f"instruction set {requires.isa}"] if requires.isa else []
    extras += [f"opset {requires.opset}"] if requires.opset is not None else []
    _console.say("needs: " + ", ".join([f"{requires.engine} (proven with {requires.engine_version})", *extras]))
    sizes = ", ".join(map(str, batch.probed))
    _console.say(
        f"batch: fixed at {batch.static}" if batch.static else f"batch: dynamic up to {batch.max}, proven at {sizes}"
    )


def _print_tensors(manifest: Manifest) -> None:
    from ipj_edge.cli.printing import console as _console

    takes = {port.name: port for stage in manifest.stages for port in stage.takes}
    adds = {port.name: port for stage in manifest.stages for port in stage.adds}
    rows = [_tensor_row("input", spec, takes.get(spec.name)) for spec in manifest.inputs]
    rows += [_tensor_row("output", spec, adds.get(spec.name)) for spec in manifest.outputs]
    _console.table(("", "name", "shape", "dtype", "layout", "holds", "in the engine", "scale · zero point"), rows)
    for name, rule in manifest.preprocessing.items():
        _console.say(
            f"images become '{name}': {rule.resize} to {rule.size[0]}×{rule.size[1]}, {rule.channels}, "
            f"(pixel · {rule.scale:g} − {list(rule.mean)}) / {list(rule.std)}, {rule.layout}"
        )
    if manifest.labels:
        more = ", …" if len(manifest.labels) > 5 else ""
        _console.say(f"labels: {len(manifest.labels)} ({', '.join(manifest.labels[:5])}{more})")


def _tensor_row(role: str, spec: TensorSpec, port: Port | None) -> tuple[str, ...]:
    from ipj_edge.samples.data import shape_text

    scale = (
        ""
        if port is None or port.quantization is None
        else f"{port.quantization.scale:.6g} · {port.quantization.zero_point}"
    )
    span = "" if spec.value_range is None else f"{spec.value_range[0]:g} to {spec.value_range[1]:g}"
    engine = "" if port is None else f"{port.dtype} {'×'.join(map(str, port.shape))}"
    return (role, spec.name, shape_text(spec), spec.dtype, spec.layout or "", spec.meaning or span, engine, scale)


def _print_stage(stage: StageSpec) -> None:
    from ipj_edge.cli.printing import console as _console
    from ipj_edge.cli.printing import files as _files

    macs = f"{stage.macs:,} MACs" if stage.macs is not None else f"MACs not counted ({stage.macs_reason})"
    operators = stage.operators
    stayed = (
        f": {', '.join(operators.float_operators[:6])}"
        if operators.float_operators and stage.precision == "int8"
        else ""
    )
    _console.say(
        f"stage '{stage.name}': {stage.file}, {stage.precision}, {macs}, {stage.parameters:,} parameters"
        f"{_files.weights_text(stage.weights)}, "
        f"{_console.bytes_text(stage.file_bytes)}; "
        f"{len(operators.float_operators)} of {operators.total} operators in float{stayed}"
    )


def _print_proof(manifest: Manifest) -> None:
    from ipj_edge.cli.printing import console as _console

    parity = manifest.parity
    how = "loosened by the user to" if parity.loosened else "allowed"
    _console.say(f"parity: verified on {parity.verified_on}, relative L2 {how} {parity.tolerance:g}")
    columns = ("output", "inputs", "samples", "relative L2", "cosine", "worst slice", "same top-1", "agreement")
    _console.table(columns, [_parity_row(figures) for figures in parity.outputs], right=("samples",))
    calibration = manifest.calibration
    if calibration is not None:
        spans = ", ".join(f"{name} {span.low:g} to {span.high:g}" for name, span in calibration.inputs.items())
        _console.say(f"calibrated on {calibration.samples} samples ({spans}), sha256 {calibration.sha256[:16]}…")


def _parity_row(figures: OutputParity) -> tuple[str, ...]:
    agreement = ""
    if figures.places is not None:
        share = "not judged" if figures.agreement is None else f"{figures.agreement:.2%}"
        agreement = f"{share} of {figures.places:,}"
    return (
        figures.output,
        figures.inputs,
        str(figures.samples),
        "" if figures.relative_l2 is None else f"{figures.relative_l2:.3g}",
        "" if figures.cosine is None else f"{figures.cosine:.6f}",
        "" if figures.worst_slice_l2 is None else f"{figures.worst_slice_l2:.3g}",
        "" if figures.top1_agreement is None else f"{figures.top1_agreement:.1%}",
        agreement,
    )
