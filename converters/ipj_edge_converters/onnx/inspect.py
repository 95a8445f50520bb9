"""What an ONNX file says of itself: sizes are inferred, nothing is run."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from ipj_edge.bundles.file_report import FileOperator, FileReport, FileTensor
from ipj_edge.bundles.manifest import OperatorCount
from ipj_edge.errors import IpjEdgeError, SourceError, reading
from ipj_edge.plugins import needs
from ipj_edge.protocols import FileInspector, MacCount
from ipj_edge_converters.onnx.graphs import all_graphs, opset_of
from ipj_edge_converters.onnx.macs import count_onnx
from ipj_edge_converters.onnx.operators import count_operators
from ipj_edge_converters.onnx.source.cleaning import clean
from ipj_edge_converters.onnx.source.reading import load_external
from ipj_edge_converters.onnx.source.shapes import describe_inputs, name_dimensions
from ipj_edge_converters.onnx.weights import count_weights
from ipj_edge_converters.sources.reading import read_file

_STANDARD = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")


class InspectOnnx:
    """Reads .onnx files."""

    name = "onnx"

    def accepts(self, path: Path) -> bool:
        """Say whether a file's name ends in ``.onnx``."""
        return path.suffix == ".onnx"

    def inspect(self, path: Path) -> FileReport:
        """Read a file. Float operators are counted in the graph that onnxruntime would run.

        Raises:
            SourceError: missing, corrupt, or without its external weights.
        """
        data = read_file(path)
        with reading(path.name, SourceError):
            return self._report(path, data)

    def _report(self, path: Path, data: bytes) -> FileReport:
        model = _load(path)
        inferred = _inferred(model)
        outsiders = _custom(model)
        counted, operators, notes = _counts(path, model, bool(outsiders))
        given = {tensor.name for tensor in model.graph.initializer}
        return FileReport(
            file=path.name,
            kind=self.name,
            format_version=f"opset {opset_of(model)}, IR {model.ir_version}",
            size_bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            inputs=tuple(_tensor(value) for value in model.graph.input if value.name not in given),
            outputs=tuple(_tensor(value) for value in model.graph.output),
            operators=_operators(inferred),
            computing=None if operators is None else operators.total,
            float_operators=() if operators is None else operators.float_operators,
            custom_operators=outsiders,
            macs=counted.macs,
            macs_reason=counted.reason,
            parameters=counted.parameters,
            dynamic=_dynamic(model, given),
            notes=notes,
        )


def _load(path: Path) -> Any:
    with needs("convert"):
        import onnx
    model = onnx.load_model_from_string(path.read_bytes())
    load_external(model, path)
    if not model.graph.node:
        raise SourceError(f"{path.name} holds no ONNX graph")
    return model


def _inferred(model: Any) -> Any:
    """Return the model with the sizes that can be inferred; as it is where they cannot."""
    with needs("convert"):
        import onnx
    try:
        return onnx.shape_inference.infer_shapes(model)
    except Exception:  # noqa: BLE001 # inference is a help to the reader, and fails in many ways on odd models
        return model


def _counts(path: Path, model: Any, custom: bool) -> tuple[MacCount, OperatorCount | None, tuple[str, ...]]:
    """Count multiply-accumulates and float operators; what cannot be counted has a reason."""
    if custom:
        reason = "it has custom operators"
        return MacCount(macs=None, reason=reason, parameters=count_weights(model)), None, ()
    notes: tuple[str, ...] = ()
    try:
        operators: OperatorCount | None = count_operators(path)
    except IpjEdgeError as error:
        operators, notes = None, (f"float operators were not counted: {error}",)
    try:
        plain = clean(_load(path), path.stem)
        name_dimensions(plain)
        counted = count_onnx(plain, describe_inputs(plain, ()))
    except IpjEdgeError as error:
        counted = MacCount(macs=None, reason=str(error), parameters=count_weights(model))
    return counted, operators, notes


def _custom(model: Any) -> tuple[str, ...]:
    local = {(function.domain, function.name) for function in model.functions}
    return tuple(
        sorted(
            {
                f"{node.domain}::{node.op_type}"
                for graph in all_graphs(model.graph)
                for node in graph.node
                if node.domain not in _STANDARD and (node.domain, node.op_type) not in local
            }
        )
    )


def _operators(model: Any) -> tuple[FileOperator, ...]:
    listed = []
    for graph in all_graphs(model.graph):
        known = {value.name: value for value in (*graph.value_info, *graph.output)}
        for node in graph.node:
            value = known.get(node.output[0]) if node.output else None
            tensor = None if value is None else _tensor(value)
            listed.append(
                FileOperator(
                    name=node.name or (node.output[0] if node.output else ""),
                    type=f"{node.domain}::{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type,
                    shape=None if tensor is None else tensor.shape,
                    dtype="" if tensor is None else tensor.dtype,
                )
            )
    return tuple(listed)


def _tensor(value: Any) -> FileTensor:
    with needs("convert"):
        from onnx import helper
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return FileTensor(name=value.name, shape=(), dtype=str(kind).removesuffix("_type"))
    tensor = value.type.tensor_type
    shape = tuple(
        int(size.dim_value) if size.HasField("dim_value") and size.dim_value > 0 else size.dim_param or "?"
        for size in tensor.shape.dim
    )
    dtype = str(helper.tensor_dtype_to_np_dtype(tensor.elem_type)) if tensor.elem_type else ""
    return FileTensor(name=value.name, shape=shape, dtype=dtype)


def _dynamic(model: Any, given: set[str]) -> tuple[str, ...]:
    return tuple(
        f"{value.name}: {size}"
        for value in model.graph.input
        if value.name not in given
        for size in _tensor(value).shape
        if isinstance(size, str)
    )


_: type[FileInspector] = InspectOnnx
