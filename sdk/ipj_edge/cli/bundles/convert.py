"""``ipj-edge convert``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ipj_edge import limits
from ipj_edge.cli.options.types import Number

if TYPE_CHECKING:
    from ipj_edge.bundles.manifest import OutputParity
    from ipj_edge.conversion import ConvertRequest, Outcome


@click.command("convert")
@click.argument("source")
@click.option("--target", "targets", multiple=True, required=True, help="Target to convert for; may be repeated.")
@click.option(
    "--precision",
    "precisions",
    multiple=True,
    type=click.Choice(["fp32", "fp16", "bf16", "int8"]),
    help="Precision; may be repeated. Default: the source's own.",
)
@click.option(
    "-o", "--into", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder for the bundles."
)
@click.option("--weights", type=click.Path(path_type=Path), help="Weights for a factory: safetensors or a state dict.")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME:SHAPE[:DTYPE[:LOW..HIGH]]",
    help="An input, e.g. image:1x3x32x32; may be repeated.",
)
@click.option(
    "--output",
    "outputs",
    multiple=True,
    metavar="NAME[:MEANING]",
    help="Name of an output, and whether it holds logits, probabilities or other.",
)
@click.option("--labels", type=click.Path(), help="Class names, one a line.")
@click.option("--preprocess", type=click.Path(), help="TOML that says how an image becomes the input.")
@click.option("--calibration", help="Real inputs for static int8: .npz, folder of images, or module:callable.")
@click.option("--data", help="Labelled data for the accuracy gate.")
@click.option("--max-accuracy-drop", metavar="PP", help="Largest drop of accuracy, e.g. 1pp; needs --data.")
@click.option(
    "--tolerance",
    type=Number(limits.TOLERANCE),
    help="Relative L2 allowed instead of the precision's own; recorded.",
)
@click.option(
    "--quantize",
    "scheme",
    type=click.Choice(["static", "dynamic"]),
    help="How to make int8: static (ranges from --calibration) or dynamic (found in each inference). "
    "Without --precision it means int8.  [default: static]",
)
@click.option(
    "--keep-float",
    multiple=True,
    metavar="PATTERN",
    help="Operators to keep in float, as `inspect` names them, e.g. 'Conv*' or '*/head/*'; may be repeated.",
)
@click.option(
    "--provider",
    "providers",
    multiple=True,
    help="Execution provider of onnxruntime-gpu, best first: cuda (the default), tensorrt; may be repeated.",
)
@click.option("--half-io", is_flag=True, help="Make inputs and outputs of fp16 files float16 inside the engine too.")
@click.option(
    "--min-mapped",
    metavar="PERCENT",
    help="Least share of operators the accelerator has to run, e.g. 90%.  [default: all but conversions at the border]",
)
@click.option("--isa", default="", help="Instruction set the device has, e.g. avx2; default assumes VNNI for int8.")
@click.option("--max-batch", default=32, show_default=True, type=Number(limits.BATCH), help="Largest batch at once.")
@click.option(
    "--split-at",
    default="",
    metavar="EXITS",
    help="Cut the model into stages at these outputs (a comma between them); exits takes all outputs.",
)
@click.option(
    "--stage-precision",
    "stage_precisions",
    default="",
    metavar="LIST",
    help="Precision of every stage of int8 bundles with several exits, e.g. fp32,int8,int8; auto measures.",
)
@click.option("--name", default="", help="Name of the bundles. Default: the source's.")
@click.option("--seed", default=0, show_default=True, type=Number(limits.SEED), help="Seed of the random inputs.")
@click.option("--force", is_flag=True, help="Replace bundles that are there.")
@click.option(
    "--sign",
    type=click.Path(path_type=Path),
    help="Sign the bundles with this private key (Ed25519, PEM); `verify --key` checks it.",
)
@click.option("--json", "json_path", metavar="FILE", help="Also write what came of it as JSON; - is stdout.")
def command(**options: Any) -> int:
    """Convert a model into a proven bundle for each target.

    SOURCE is file.py:callable, package.module:callable (both returning a torch module), a .pt2, .onnx or .tflite file.
    Factories and .pt2 files are trusted input: they run code of their author.
    """
    from ipj_edge.cli.printing import console as _console
    from ipj_edge.conversion import convert

    json_path = options.pop("json_path")
    _console.check_json(json_path)
    outcomes = convert(_request(**options), progress=_console.progress)
    if json_path != "-":
        _print(outcomes)
    if json_path is not None:
        _console.write_json([_entry(outcome) for outcome in outcomes], json_path)
    return next((outcome.error.exit_code for outcome in outcomes if outcome.error is not None), 0)


def _request(**options: Any) -> ConvertRequest:
    from ipj_edge.cli.options import parse as _parse
    from ipj_edge.conversion import ConvertRequest
    from ipj_edge.conversion.plan.request import take_options

    options["min_mapped"] = _parse.share(options["min_mapped"])
    for name in ("split_at", "stage_precisions"):
        options[name] = tuple(each for each in options[name].split(",") if each)
    inputs = tuple(_parse.tensor_spec(text) for text in options.pop("inputs"))
    output_names, meanings = _parse.output_names(options.pop("outputs"))
    return ConvertRequest(
        inputs=inputs,
        output_names=output_names,
        meanings=meanings,
        labels=_parse.labels(options.pop("labels")),
        preprocessing=_parse.preprocessing(options.pop("preprocess")),
        max_accuracy_drop=_parse.drop(options.pop("max_accuracy_drop")),
        options=take_options(options),
        **options,
    )


def _print(outcomes: tuple[Outcome, ...]) -> None:
    from ipj_edge.cli.printing import console as _console

    for outcome in outcomes:
        for warning in outcome.warnings:
            _console.note(f"{outcome.target} {outcome.precision}: {warning}")
    done = [outcome for outcome in outcomes if outcome.bundle is not None]
    if done:
        columns = ("bundle", "size", "parity (rel. L2, agreement)", "float operators", "accuracy", "time")
        _console.table(columns, [_row(outcome) for outcome in done], right=("size", "time"))
    for outcome in outcomes:
        if outcome.error is not None:
            click.echo(f"ipj-edge: {outcome.target} {outcome.precision}: {outcome.error}", err=True)


def _row(outcome: Outcome) -> tuple[str, ...]:
    from ipj_edge.cli.printing import console as _console

    assert outcome.bundle is not None
    manifest = outcome.bundle.manifest
    operators = manifest.stages[0].operators
    # A static quantization promises nothing outside its calibrated range: there it was not judged either.
    judged = [each for each in manifest.parity.outputs if manifest.scheme != "static" or each.inputs != "random"]
    accuracy = "" if outcome.accuracy is None else f"{outcome.accuracy[1]:.4f} (source {outcome.accuracy[0]:.4f})"
    return (
        str(outcome.bundle.path),
        _console.bytes_text(sum(record.size_bytes for record in manifest.files)),
        _parity_text(judged or list(manifest.parity.outputs)),
        f"{len(operators.float_operators)} of {operators.total}",
        accuracy,
        f"{outcome.seconds:.1f} s",
    )


def _parity_text(figures: list[OutputParity]) -> str:
    """Return the worst distance of float outputs and the worst agreement of whole numbers."""
    distances = [(each.relative_l2, each.inputs) for each in figures if each.relative_l2 is not None]
    shares = [(each.agreement, each.places, each.inputs) for each in figures if each.agreement is not None]
    told = [f"{distance:.2g} on {inputs}" for distance, inputs in sorted(distances)[-1:]]
    told += [f"agreement {share:.2%} of {places:,} on {inputs}" for share, places, inputs in sorted(shares)[:1]]
    return "; ".join(told)


def _entry(outcome: Outcome) -> dict[str, Any]:
    return {
        "target": outcome.target,
        "precision": outcome.precision,
        "bundle": None if outcome.bundle is None else str(outcome.bundle.path),
        "error": None if outcome.error is None else str(outcome.error),
        "exit_code": 0 if outcome.error is None else outcome.error.exit_code,
        "seconds": outcome.seconds,
        "accuracy": None
        if outcome.accuracy is None
        else {"source": outcome.accuracy[0], "bundle": outcome.accuracy[1]},
        "warnings": list(outcome.warnings),
    }
