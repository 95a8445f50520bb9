"""The onnx source: an ``.onnx`` file of opset 7 or newer, with its weights inside or beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ipj_edge.errors import SourceError, reading
from ipj_edge.protocols import SourceOpener, SourceRequest
from ipj_edge_converters.onnx.files import set_dimension
from ipj_edge_converters.onnx.source.cleaning import clean, declare_shapes, rename_outputs
from ipj_edge_converters.onnx.source.described import Described, describe, with_proven_batch
from ipj_edge_converters.onnx.source.outputs import batch_is_frozen
from ipj_edge_converters.onnx.source.reading import read_onnx
from ipj_edge_converters.onnx.source.reference import OnnxEngine
from ipj_edge_converters.onnx.source.shapes import batch_name, name_dimensions
from ipj_edge_converters.onnx.source.source import OnnxSource, write_source
from ipj_edge_converters.onnx.source.widening import has_half_precision, precision_of, widen
from ipj_edge_converters.sources.described import check_has_inputs, samples_elsewhere
from ipj_edge_converters.sources.origin import Origin


class OnnxOpener:
    """Opens ``.onnx`` files."""

    name = "onnx"

    def accepts(self, location: str) -> bool:
        """Say whether a location ends in ``.onnx``."""
        return location.endswith(".onnx")

    def open(self, request: SourceRequest) -> OnnxSource:
        """Read the file, bring it into plain form and try it.

        Raises:
            SourceError: missing, corrupt, of an unknown version, or not as described.
            UnsupportedError: it needs operators that no engine has on its own; names them.
        """
        path = Path(request.location)
        with reading(f"'{path.name}'", SourceError):
            return self._open(path, request)

    def _open(self, path: Path, request: SourceRequest) -> OnnxSource:
        model, sha256 = read_onnx(path)
        engine = OnnxEngine(request.workdir, path.name)
        precision = precision_of(model)
        model, notes = _plain(model, request, path.stem)
        check_has_inputs([value.name for value in model.graph.input], path.name)
        described = describe(model, request, engine)
        reason = _why_static(model, described, request)
        if reason:
            set_dimension(model, str(batch_name(model)), 1)
            described = describe(model, request, engine)
            notes = (*notes, f"the batch is static: {reason}")
        described = with_proven_batch(model, described, request, engine, quantized=precision == "int8")
        declare_shapes(model.graph.output, described.outputs)
        return OnnxSource(
            Origin(kind=self.name, name=path.stem, file=path.name, sha256=sha256, precision=precision),
            write_source(model, request.workdir),
            described.inputs,
            described.outputs,
            described.reference,
            notes=notes,
            max_batch=request.max_batch,
            only_size=described.only_size,
        )


def _why_static(model: Any, described: Described, request: SourceRequest) -> str:
    """Return why a model that declares a dynamic batch gets a static one; empty where it need not."""
    if batch_name(model) is None:
        return ""
    if batch_is_frozen(described.reference.run, described.inputs, request.examples):
        return "the model declares any batch and fails at batch 2"
    return samples_elsewhere((*described.inputs, *described.outputs))


def _plain(model: Any, request: SourceRequest, name: str) -> tuple[Any, tuple[str, ...]]:
    """Return the model in plain form, and notes on what was changed."""
    notes: tuple[str, ...] = ()
    model = clean(model, name)
    if has_half_precision(model):
        widen(model)
        notes = ("half precision was widened to float32: the same weights, computed without rounding to half",)
    name_dimensions(model)
    rename_outputs(model, request.output_names)
    return model, notes


_: type[SourceOpener] = OnnxOpener
