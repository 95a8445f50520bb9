"""Reading an ONNX file with OpenVINO, and saying in words why it cannot be read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ipj_edge.errors import UnsupportedError, telling_line
from ipj_edge.plugins import needs
from ipj_edge_converters.openvino.file import NOISE, import_openvino

_NO_RULE = re.compile(r"No conversion rule found for operations: (.+)")
_FAILED = re.compile(r"Conversion is failed for: (.+)")
_REASON = re.compile(r"with a message:\n(.+?)\n\n", re.DOTALL)


def read_onnx(path: Path) -> Any:
    """Read an ONNX file as an ``openvino.Model``.

    Raises:
        UnsupportedError: openvino has no such operator, which is named, or cannot convert the model for another
            reason.
    """
    openvino = import_openvino()
    try:
        model = openvino.convert_model(path)
    except Exception as error:  # its front end has classes of its own and lets those of Python through
        raise _explained(error) from error
    _name_ports(model, path)
    return model


def _name_ports(model: Any, path: Path) -> None:
    """Give inputs and outputs the names of the file: where one is the other, openvino drops a name of the two."""
    with needs("convert"):
        import onnx
    graph = onnx.load(path, load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [value.name for value in graph.input if value.name not in weights]
    if len(inputs) != len(model.inputs):
        return  # one that nothing reads is gone
    lost = [(name, port) for name, port in zip(inputs, model.inputs, strict=True) if name not in port.get_names()]
    for name, port in lost:
        _set_apart(model, port)
        port.get_tensor().set_names({name})


def _set_apart(model: Any, port: Any) -> None:
    """Put an operator that changes nothing between an input and the outputs that are this input."""
    from openvino import opset16

    for result in model.get_results():
        if result.input(0).get_source_output().get_node().get_friendly_name() == port.get_node().get_friendly_name():
            names = result.output(0).get_names()
            same = opset16.identity(port.get_node().output(0)).output(0)
            same.get_tensor().set_names(names)
            result.input(0).replace_source_output(same)


def _explained(error: Exception) -> UnsupportedError:
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
    return UnsupportedError(f"openvino cannot convert this model: {telling_line(error, NOISE, last=True)}")


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
