"""Printing what model files say of themselves, and where the operators of a bundle run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ipj_edge.cli.printing import console as _console

if TYPE_CHECKING:
    from ipj_edge.bundles.file_report import FileOperator, FileReport, FileTensor
    from ipj_edge.bundles.manifest import StateTensor
    from ipj_edge.bundles.placement import Placement
    from ipj_edge.protocols import FileInspector

_LONGEST_NAME = 60


def inspect_file(path: Path) -> FileReport | None:
    """Read a model file, or return None when it is not of a kind that an inspector knows.

    Raises:
        SourceError: missing or corrupt.
        MissingDependencyError: its inspector needs a package that is not installed.
    """
    from ipj_edge.plugins import INSPECTORS, load_usable

    if path.is_dir():
        return None
    found: FileInspector | None = next((each for each in load_usable(INSPECTORS) if each.accepts(path)), None)
    return None if found is None else found.inspect(path)


def print_report(report: FileReport, *, operators: bool) -> None:
    """Print what was read from a file; every operator only when asked for."""
    _console.say(
        f"{report.file}: {report.kind}, {report.format_version}, {_console.bytes_text(report.size_bytes)}, "
        f"sha256 {report.sha256[:16]}…"
    )
    rows = [_tensor_row("input", tensor) for tensor in report.inputs]
    rows += [_tensor_row("output", tensor) for tensor in report.outputs]
    _console.table(("", "name", "shape", "dtype", "scale · zero point"), rows)
    macs = f"{report.macs:,} MACs" if report.macs is not None else f"MACs not counted ({report.macs_reason})"
    _console.say(f"{macs}, {report.parameters:,} parameters{weights_text(report.weights)}")
    _say_numbers(report)
    print_state(report.state)
    if report.dynamic:
        _console.say(f"dynamic sizes: {', '.join(report.dynamic)}")
    if operators:
        _print_operators(report.operators)
    else:
        _print_types(report)
    for note in report.notes:
        _console.say(f"note: {note}")


def print_placement(placement: Placement) -> None:
    """Print where each operator runs, and why not on the accelerator."""
    how = (
        f"decided by {placement.compiler}" if placement.found_by == "compiler" else "predicted from the vendor's table"
    )
    macs = placement.macs_share()
    share = "" if macs is None else f", {macs:.1%} of the MACs"
    accelerated = sum(each.accelerated for each in placement.operators)
    _console.say(f"{accelerated} of {len(placement.operators)} operators on the accelerator{share}; {how}")
    if placement.on_chip_bytes is not None and placement.off_chip_bytes is not None:
        _console.say(
            f"weights: {_console.bytes_text(placement.on_chip_bytes)} in the accelerator's memory, "
            f"{_console.bytes_text(placement.off_chip_bytes)} sent in every inference"
        )
    rows = [
        (
            each.type,
            "accelerator" if each.accelerated else "host",
            "" if each.macs is None else f"{each.macs:,}",
            each.reason,
            _short(each.name),
        )
        for each in placement.operators
    ]
    _console.table(("operator", "runs on", "MACs", "why", "makes"), rows, right=("MACs",))


def print_state(state: Iterable[StateTensor]) -> None:
    """Print what is kept between inferences, where anything is."""
    kept = [f"{_short(each.name)} {each.dtype} {'×'.join(map(str, each.shape))}".strip() for each in state]
    if kept:
        _console.say(f"keeps between calls (model.reset() sets it back): {', '.join(kept)}")


def weights_text(weights: dict[str, int]) -> str:
    """Write weights by dtype in brackets, most first; nothing where they were not told apart."""
    ordered = sorted(weights.items(), key=lambda item: -item[1])
    return f" ({', '.join(f'{count:,} {dtype}' for dtype, count in ordered)})" if ordered else ""


def _say_numbers(report: FileReport) -> None:
    if report.computing is not None:
        floats = report.float_operators
        some = f": {', '.join(map(_short, floats[:4]))}{', …' if len(floats) > 4 else ''}" if floats else ""
        _console.say(f"{len(floats)} of {report.computing} computing operators in float{some}")
    if report.custom_operators:
        _console.say(f"custom operators: {', '.join(report.custom_operators)}")


def _print_types(report: FileReport) -> None:
    counted: dict[tuple[str, str], list[FileOperator]] = {}
    for operator in report.operators:
        version = "" if operator.version is None else str(operator.version)
        counted.setdefault((operator.type, version), []).append(operator)
    rows = [
        (
            kind,
            version,
            str(len(group)),
            ", ".join(sorted({operator.dtype for operator in group if operator.dtype})),
            _macs(group),
        )
        for (kind, version), group in sorted(counted.items(), key=lambda item: -len(item[1]))
    ]
    _console.table(("operator", "version", "count", "makes", "MACs"), rows, right=("version", "count", "MACs"))


def _print_operators(operators: Iterable[FileOperator]) -> None:
    rows = [
        (
            operator.type,
            "" if operator.version is None else str(operator.version),
            "" if operator.shape is None else _shape(operator.shape),
            operator.dtype,
            _macs([operator]),
            _short(operator.name),
        )
        for operator in operators
    ]
    _console.table(("operator", "version", "shape", "dtype", "MACs", "name"), rows, right=("version", "MACs"))


def _macs(operators: list[FileOperator]) -> str:
    known = [operator.macs for operator in operators if operator.macs is not None]
    return f"{sum(known):,}" if known and len(known) == len(operators) else ""


def _tensor_row(role: str, tensor: FileTensor) -> tuple[str, ...]:
    quantization = tensor.quantization
    scale = "" if quantization is None else f"{quantization.scale:.6g} · {quantization.zero_point}"
    return role, tensor.name, _shape(tensor.shape), tensor.dtype, scale


def _shape(shape: tuple[int | str, ...]) -> str:
    return "×".join(map(str, shape)) or "scalar"


def _short(name: str) -> str:
    """Return the end of a long name: exporters put the path to an operator in front of it."""
    first = name.split(";", 1)[0]
    return first if len(first) <= _LONGEST_NAME else "…" + first[-_LONGEST_NAME:]
