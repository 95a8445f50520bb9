"""For the Edge TPU: a full-int8 .tflite file, compiled where ``edgetpu_compiler`` is on PATH, mapped in any case."""

from __future__ import annotations

from typing import Any

import msgspec

from ipj_edge.bundles.placement import Placement, write_placement
from ipj_edge.errors import ConversionError, UnsupportedError
from ipj_edge.protocols import ConversionTask, Converter, StageFiles
from ipj_edge.values import Precision, Scheme
from ipj_edge_converters.edgetpu.compiled import compiled_placement
from ipj_edge_converters.edgetpu.compiler import PROGRAM, compile_model, find_compiler
from ipj_edge_converters.edgetpu.fitting import fit
from ipj_edge_converters.edgetpu.mapping import predict
from ipj_edge_converters.tflite import file as tflite_file
from ipj_edge_converters.tflite.as_is import TfliteAsIs
from ipj_edge_converters.tflite.convert import converted as from_torch
from ipj_edge_converters.tflite.onnx2tf.convert import converted as from_onnx

_TARGET = "edgetpu"
# One scale for each: kernels of the Edge TPU's compiler know no scale per channel for these.
_TENSORWISE = ("BATCH_MATMUL", "FULLY_CONNECTED")


class ToEdgetpu:
    """Converts torch modules for `edgetpu`: quantized as for `tflite-cpu`, with one scale for each dense layer."""

    name = "to-edgetpu"
    form = "torch"
    targets: tuple[str, ...] = (_TARGET,)
    precisions: tuple[Precision, ...] = ("int8",)
    schemes: tuple[Scheme, ...] = ("static",)
    maps_to = "Edge TPU"

    def convert(self, task: ConversionTask) -> StageFiles:
        """Convert, quantize, map and, where the compiler is installed, compile.

        Raises:
            UnsupportedError: TFLite lacks an operator, or the Edge TPU would run fewer than asked for; names the first.
            ConversionError: the conversion or the compilation failed.
            DataError: no calibration data.
        """
        _check_whole(task)
        return _fitted(task, from_torch(task, tensorwise=_TENSORWISE))


class ToEdgetpuOnnx2tf:
    """Converts ONNX for `edgetpu` through onnx2tf, quantized as torch modules are."""

    name = "to-edgetpu-onnx2tf"
    form = "onnx"
    targets: tuple[str, ...] = (_TARGET,)
    precisions: tuple[Precision, ...] = ("int8",)
    schemes: tuple[Scheme, ...] = ("static",)
    maps_to = "Edge TPU"

    def convert(self, task: ConversionTask) -> StageFiles:
        """Convert, quantize, map and, where the compiler is installed, compile.

        Raises:
            TargetUnavailableError: onnx2tf is not on PATH, or the source is already quantized.
            UnsupportedError: TFLite lacks an operator, or the Edge TPU would run fewer than asked for; names the first.
            ConversionError: the conversion or the compilation failed.
            DataError: no calibration data.
        """
        _check_whole(task)
        return _fitted(task, from_onnx(task, tensorwise=_TENSORWISE))


class EdgetpuAsIs:
    """Maps and compiles .tflite sources for `edgetpu`; their scales stay as they are."""

    name = "edgetpu-as-is"
    form = "tflite"
    targets: tuple[str, ...] = (_TARGET,)
    precisions: tuple[Precision, ...] = ("int8",)
    maps_to = "Edge TPU"

    def convert(self, task: ConversionTask) -> StageFiles:
        """Package the file, map it and, where the compiler is installed, compile it.

        Raises:
            UnsupportedError: the file is not full int8, or the Edge TPU would run fewer operators than asked for.
            TargetUnavailableError: the source is quantized and another precision is wanted.
        """
        _check_whole(task)
        files = TfliteAsIs().convert(task)
        if files.scheme == "dynamic":
            raise UnsupportedError(
                f"'{task.source.file}' is quantized dynamically and keeps float activations; the Edge TPU runs full "
                "int8 only: quantize it again with calibration data"
            )
        return placed(task, files)


def _fitted(task: ConversionTask, files: StageFiles) -> StageFiles:
    """Spell the file that lies in ``task.into`` as the compiler reads it, and place its operators."""
    path = task.into / files.file
    model = tflite_file.parse(path.read_bytes())
    fit(model)
    path.write_bytes(tflite_file.pack(model))
    return placed(task, files)


def placed(task: ConversionTask, files: StageFiles) -> StageFiles:
    """Map and perhaps compile the file that lies in ``task.into``.

    Raises:
        UnsupportedError: fewer operators than asked for would run on the Edge TPU.
        ConversionError: the compilation failed.
    """
    path = task.into / files.file
    whole = tflite_file.parse(tflite_file.inlined(path.read_bytes()))
    program = find_compiler()
    if program is None:
        placement = predict(whole)
        check_share(placement, task.options.min_mapped)
        write_placement(task.into, placement)
        return msgspec.structs.replace(
            files, notes=(*files.notes, _uncompiled_note(), *_further_subgraphs_note(placement))
        )
    compiled, log = compile_model(program, path, task.into)
    made = tflite_file.parse(tflite_file.inlined(compiled.read_bytes()))
    _check_same_ends(whole, made)
    placement = compiled_placement(whole, made, log)
    check_share(placement, task.options.min_mapped)
    write_placement(task.into, placement)
    return msgspec.structs.replace(
        files,
        file=compiled.name,
        proxy_file=files.file,
        versions={**files.versions, PROGRAM: log.version},
        notes=(*files.notes, *_streaming_note(placement), *_further_subgraphs_note(placement)),
    )


def check_share(placement: Placement, wanted: float | None) -> None:
    """Refuse a model of which the Edge TPU would run less than is wanted, and never accept nothing.

    Args:
        placement: Where each operator runs.
        wanted: Share of operators, 0..1; None for all but conversions at the border.

    Raises:
        UnsupportedError: names the first operator left out, and why.
    """
    share, left = placement.share(), placement.left_out()
    if share > 0 and share >= (1.0 if wanted is None else wanted):
        return
    inner = sum(not each.at_border for each in placement.operators)
    macs = placement.macs_share()
    of_macs = "" if macs is None else f", {macs:.1%} of the multiply-accumulates"
    first = next((each for each in left if each.reason), None)
    why = "" if first is None else f"; first left out: {first.type} '{first.name}': {first.reason}"
    how = "would run" if placement.found_by == "table" else "runs"
    advice = "" if share == 0 else f"; accept that with --min-mapped {max(0, int(100 * share))}%"
    raise UnsupportedError(
        f"the Edge TPU {how} {inner - len(left)} of {inner} operators{of_macs}{why}{advice}",
        tuple(dict.fromkeys(each.type for each in left)),
    )


def _check_whole(task: ConversionTask) -> None:
    """Refuse stages: each would have to be compiled on its own, and none of that could be proven without a device.

    Programs compiled together have answered wrongly on the device (google-coral/edgetpu issue 85).
    """
    if task.options.split_at:
        raise UnsupportedError(
            f"'{_TARGET}' takes no model cut into stages ({', '.join(task.options.split_at)}): "
            "convert its last exit alone"
        )


def _check_same_ends(whole: Any, compiled: Any) -> None:
    """Refuse a compiled file that takes or makes something else than the file it was made from."""
    for side in ("inputs", "outputs"):
        before, after = (
            [tflite_file.described(graph.tensors[index], "") for index in getattr(graph, side)]
            for graph in (whole.subgraphs[0], compiled.subgraphs[0])
        )
        if before != after:
            raise ConversionError(f"{PROGRAM} changed the {side} of the model: {before} became {after}")


def _uncompiled_note() -> str:
    return (
        f"not compiled: {PROGRAM} is not on PATH here, so the Edge TPU cannot run this bundle yet; where operators "
        "would run is predicted from the published table"
    )


def _streaming_note(placement: Placement) -> tuple[str, ...]:
    if not placement.off_chip_bytes:
        return ()
    return (f"{placement.off_chip_bytes:,} bytes of weights do not fit the Edge TPU and are sent in every inference",)


def _further_subgraphs_note(placement: Placement) -> tuple[str, ...]:
    more = placement.in_further_subgraphs()
    if not more:
        return ()
    parts = max(each.subgraph or 0 for each in placement.operators)
    return (
        f"{more} operators that the Edge TPU could run follow one that it cannot: they form subgraphs 2 to {parts}, "
        f"and run on the host, for {PROGRAM} maps the first alone",
    )


_torch: type[Converter] = ToEdgetpu
_onnx: type[Converter] = ToEdgetpuOnnx2tf
_tflite: type[Converter] = EdgetpuAsIs
