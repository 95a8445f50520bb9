"""What a .tflite file says of itself, broken and custom ones too: the flatbuffer is read, nothing is run."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from ipj_edge.bundles.file_report import FileOperator, FileReport, FileTensor
from ipj_edge.errors import ConversionError, SourceError, reading
from ipj_edge.protocols import FileInspector
from ipj_edge_converters.sources.reading import read_file
from ipj_edge_converters.tflite import file as tflite_file
from ipj_edge_converters.tflite.counting import count_tflite
from ipj_edge_converters.tflite.entry import TfliteEntry, read_entry
from ipj_edge_converters.tflite.file import TfliteTensor
from ipj_edge_converters.tflite.numbers import read_numbers
from ipj_edge_converters.tflite.operators import custom_operators, list_operators
from ipj_edge_converters.tflite.source.specs import batch_of
from ipj_edge_converters.tflite.state import read_state


class InspectTflite:
    """Reads .tflite files."""

    name = "tflite"

    def accepts(self, path: Path) -> bool:
        """Say whether a file's name ends in ``.tflite``."""
        return path.suffix == ".tflite"

    def inspect(self, path: Path) -> FileReport:
        """Read a file; its first graph gives inputs, outputs and multiply-accumulates.

        Raises:
            SourceError: missing, or no .tflite file.
        """
        data = read_file(path)
        with reading(path.name, SourceError):
            return self._report(path, data)

    def _report(self, path: Path, data: bytes) -> FileReport:
        try:
            model = tflite_file.parse(tflite_file.inlined(data))
            entry, numbers = read_entry(model), read_numbers(model)
        except ConversionError as error:
            raise SourceError(f"{path.name}: {error}") from error
        counted, operators = count_tflite(model, batch_of(entry)), tflite_file.count_operators(model)
        return FileReport(
            file=path.name,
            kind=self.name,
            format_version=f"schema {model.version}",
            size_bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            inputs=tuple(_tensor(tensor, entry) for tensor in entry.inputs),
            outputs=tuple(_tensor(tensor, entry) for tensor in entry.outputs),
            operators=_operators(model),
            computing=operators.total,
            float_operators=operators.float_operators,
            custom_operators=custom_operators(model),
            macs=counted.macs,
            macs_reason=counted.reason,
            parameters=counted.parameters,
            weights=numbers.weights,
            state=read_state(model),
            dynamic=tuple(f"{name}: {axis}" for name, axes in entry.open_sizes.items() for axis in axes),
            notes=_notes(model, numbers.note),
        )


def _tensor(tensor: TfliteTensor, entry: TfliteEntry) -> FileTensor:
    named = entry.open_sizes.get(tensor.argument, ())
    return FileTensor(
        name=tensor.argument,
        shape=tuple("?" if axis in named else size for axis, size in enumerate(tensor.shape)),
        dtype=tensor.dtype,
        quantization=tensor.quantization,
    )


def _operators(model: Any) -> tuple[FileOperator, ...]:
    return tuple(
        FileOperator(
            name=operator.name,
            type=operator.type,
            version=operator.version,
            shape=operator.shape,
            dtype=operator.dtype,
            macs=operator.macs,
        )
        for operator in list_operators(model)
    )


def _notes(model: Any, numbers: str) -> tuple[str, ...]:
    keys = [tflite_file.text(each.signatureKey) for each in model.signatureDefs or []]
    graphs = len(model.subgraphs)
    said = [numbers]
    if len(keys) > 1:
        said.append(f"signatures: {', '.join(keys)}")
    if graphs > 1:
        said.append(f"{graphs} graphs; multiply-accumulates are those of the first")
    return tuple(filter(None, said))


_: type[FileInspector] = InspectTflite
