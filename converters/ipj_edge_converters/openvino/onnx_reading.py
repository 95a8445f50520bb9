"""Reading an ONNX file with OpenVINO, and saying in words why it cannot be read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ipj_edge.errors import ConversionError, UnsupportedError, telling_line
from ipj_edge.plugins import needs
from ipj_edge_converters.openvino.file import NOISE, import_openvino

_NO_RULE = re.compile(r"No conversion rule found for operations: (.+)")
_FAILED = re.compile(r"Conversion is failed for: (.+)")
_REASON = re.compile(r"with a message:\n(.+?)\n\n", re.DOTALL)


def read_onnx(path: Path) -> Any:
    """Read an ONNX file as an ``openvino.Model``.

    Raises:
        UnsupportedError: openvino has no such operator; names it.
        ConversionError: openvino cannot convert the model for another reason.
    """
    openvino = import_openvino()
    from openvino.frontend import GeneralFailure, OpConversionFailure, OpValidationFailure
    from openvino.tools.ovc.error import BasicError

    try:
        return openvino.convert_model(path)
    except (OpConversionFailure, OpValidationFailure, GeneralFailure, BasicError, RuntimeError) as error:
        raise _explained(error) from error


def _explained(error: Exception) -> ConversionError:
    """Tell an operator that openvino lacks from one it cannot convert as this model uses it."""
    message = str(error)
    lacking, failed, reason = _NO_RULE.search(message), _FAILED.search(message), _REASON.search(message)
    if lacking is not None:
        operators = _operators(lacking[1])
        return UnsupportedError(
            f"openvino has no {', '.join(operators)}: replace it in the model or choose another target", operators
        )
    if failed is not None:
        operators = _operators(failed[1])
        why = f" ({reason[1].splitlines()[-1].strip()})" if reason else ""
        return UnsupportedError(
            f"openvino cannot convert {', '.join(operators)} as this model uses it{why}: "
            "change the model or choose another target",
            operators,
        )
    return ConversionError(f"openvino cannot convert this model: {telling_line(error, NOISE, last=True)}")


def _operators(listed: str) -> tuple[str, ...]:
    # openvino writes the operator's opset behind its name, e.g. "Det-17".
    return tuple(re.sub(r"-\d+$", "", name.strip()) for name in listed.split(","))


def onnx_names(path: Path) -> set[str]:
    """Return the names of all nodes and tensors of an ONNX file, sub-graphs included; weights are not read."""
    with needs("convert"):
        import onnx
    names: set[str] = set()
    for graph in _graphs(onnx.load(path, load_external_data=False).graph):
        names.update(value.name for value in (*graph.input, *graph.output, *graph.initializer))
        for node in graph.node:
            names.update((node.name, *node.output))
    return names - {""}


def _graphs(graph: Any) -> Iterator[Any]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs):
                yield from _graphs(inner)
