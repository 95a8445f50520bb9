"""Turn an exported torch program into an ONNX file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ipj_edge.errors import ConversionError, UnsupportedError, typed_line
from ipj_edge.plugins import needs
from ipj_edge.values import TensorSpec
from ipj_edge_converters.onnx.files import rename_dimension, save_onnx, set_dimension
from ipj_edge_converters.quiet import quiet

# The opset torch's exporter is written for; onnxruntime has it since 1.14, OpenVINO since 2023.
OPSET = 18

_ATEN = re.compile(r"\b(?:aten|prims|torchvision|quantized|\w+_lib)[.:]{1,2}\w+(?:\.\w+)?")


def write_onnx(exported: Any, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], path: Path) -> None:
    """Write a program as ONNX under the names of its inputs and outputs, weights inline.

    Raises:
        UnsupportedError: ONNX cannot express an operator; names it.
        ConversionError: the exporter failed for another reason.
    """
    with needs("convert"):
        import torch
        from torch.onnx.errors import OnnxExporterError
    try:
        with quiet("torch.onnx", "torch.export", "onnxscript", "onnx_ir"):
            program = torch.onnx.export(
                exported,
                dynamo=True,
                opset_version=OPSET,
                input_names=[spec.name for spec in inputs],
                output_names=[spec.name for spec in outputs],
                external_data=False,
                verbose=False,
            )
    except OnnxExporterError as error:
        raise _explained(error) from error
    model = program.model_proto
    _declare_sizes(model, inputs)
    save_onnx(model, path)


def _declare_sizes(model: Any, inputs: Sequence[TensorSpec]) -> None:
    """Give dynamic sizes the names, or the numbers, that the specs have for them."""
    by_name = {value.name: value for value in model.graph.input}
    for spec in inputs:
        for size, wanted in zip(by_name[spec.name].type.tensor_type.shape.dim, spec.shape, strict=True):
            if size.dim_param and isinstance(wanted, int):
                set_dimension(model, size.dim_param, wanted)
            elif size.dim_param and size.dim_param != wanted:
                rename_dimension(model, size.dim_param, str(wanted))


def _explained(error: BaseException) -> ConversionError:
    """Find the operators an exporter's error is about."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__
    cause = chain[-1]
    operators = tuple(sorted(set(_ATEN.findall(str(cause)))))
    if operators:
        return UnsupportedError(f"ONNX cannot express the operator {', '.join(operators)}", operators)
    return ConversionError(f"torch's ONNX exporter failed: {typed_line(cause)}")
