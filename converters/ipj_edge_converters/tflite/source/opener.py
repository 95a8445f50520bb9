"""The tflite source: a ``.tflite`` file, float or quantized, packaged as it is."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from ipj_edge.errors import ConversionError, SourceError, reading
from ipj_edge.protocols import SourceOpener, SourceRequest
from ipj_edge.values import TensorSpec
from ipj_edge_converters.sources.described import check_has_inputs, merge_described, open_sizes
from ipj_edge_converters.sources.origin import Origin
from ipj_edge_converters.tflite import file as tflite_file
from ipj_edge_converters.tflite.entry import TfliteEntry, read_entry, with_entry_in_front, with_names, with_sizes
from ipj_edge_converters.tflite.numbers import read_numbers
from ipj_edge_converters.tflite.source.asking import open_reference, probe, static_sizes, with_proven_batch
from ipj_edge_converters.tflite.source.source import TfliteSource
from ipj_edge_converters.tflite.source.specs import input_specs, output_specs

_SUFFIX = ".tflite"


class TfliteOpener:
    """Opens ``.tflite`` files; ``FILE.tflite:SIGNATURE`` names one of several signatures."""

    name = "tflite"

    def accepts(self, location: str) -> bool:
        """Say whether a location is a .tflite file, perhaps with a signature."""
        return _split(location)[0].endswith(_SUFFIX)

    def open(self, request: SourceRequest) -> TfliteSource:
        """Read the file, choose its signature, and try it in a child process.

        Raises:
            SourceError: missing, corrupt, not as described, or a signature or a size has to be named.
            UnsupportedError: it needs operators the engine does not have; names them.
            EngineCrashError: the engine died on it.
        """
        location, signature = _split(request.location)
        path = Path(location)
        data = _read(path)
        with reading(f"'{path.name}'", SourceError):
            return self._open(path, data, signature, request)

    def _open(self, path: Path, data: bytes, signature: str, request: SourceRequest) -> TfliteSource:
        model = _parse(data, path.name)
        changed = with_entry_in_front(model, signature, path.name)
        changed = with_names(model) or changed
        check_has_inputs([tensor.argument for tensor in read_entry(model).inputs], path.name)
        inputs = _inputs(model, request, path.name)
        numbers = read_numbers(model)
        sized = with_proven_batch(model, inputs, request, path.name, quantized=numbers.precision == "int8")
        inputs = sized.inputs
        changed = with_sizes(model, {spec.name: static_sizes(spec) for spec in inputs}) or changed
        written = request.workdir / "source.tflite"
        written.write_bytes(tflite_file.pack(model) if changed else data)
        reference = open_reference(model, written, path.name)
        entry = _renamed(read_entry(model), request.output_names)
        return TfliteSource(
            Origin(
                kind=self.name,
                name=path.stem,
                file=path.name,
                sha256=hashlib.sha256(data).hexdigest(),
                precision=numbers.precision,
            ),
            written,
            entry,
            sized,
            output_specs(entry, inputs, probe(entry, inputs, reference)),
            reference,
            model=model,
            notes=tuple(filter(None, (numbers.note, _signature_note(signature, changed)))),
        )


def _split(location: str) -> tuple[str, str]:
    before, colon, after = location.rpartition(":")
    return (before, after) if colon and before.endswith(_SUFFIX) else (location, "")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise SourceError(f"no such file: {path}") from error
    except OSError as error:
        raise SourceError(f"cannot read {path}: {error.strerror}") from error


def _parse(data: bytes, file: str) -> Any:
    try:
        model = tflite_file.parse(tflite_file.inlined(data))
    except ConversionError as error:
        raise SourceError(f"{file}: {error}") from error
    if not model.subgraphs:
        raise SourceError(f"{file} holds no graph")
    return model


def _inputs(model: Any, request: SourceRequest, file: str) -> tuple[TensorSpec, ...]:
    own = input_specs(model, read_entry(model))
    said = merge_described(own, request.inputs)
    merged = tuple(
        msgspec.structs.replace(spec, layout=spec.layout or old.layout, value_range=spec.value_range or old.value_range)
        for spec, old in zip(said, own, strict=True)
    )
    for spec in merged:
        if open_sizes(spec):
            shape = "x".join(str(size) for size in spec.shape)
            raise SourceError(f"{file} leaves sizes of '{spec.name}' open ({shape}): give them with --input")
    return merged


def _renamed(entry: TfliteEntry, names: tuple[str, ...]) -> TfliteEntry:
    if not names:
        return entry
    if len(names) != len(entry.outputs):
        raise SourceError(f"the model has {len(entry.outputs)} outputs; {len(names)} names were given with --output")
    outputs = tuple(
        msgspec.structs.replace(tensor, argument=name) for tensor, name in zip(entry.outputs, names, strict=True)
    )
    return msgspec.structs.replace(entry, outputs=outputs)


def _signature_note(signature: str, changed: bool) -> str:
    return f"only the signature '{signature}' of the file is packaged" if signature and changed else ""


_: type[SourceOpener] = TfliteOpener
