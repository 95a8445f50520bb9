"""Which operators of an OpenVINO IR file compute in int8, read from the file alone.

An operator counts as int8 when the engine can run it on 8-bit integers: all its float-typed inputs are quantized
(``FakeQuantize`` with at most 256 levels, or stored as 8-bit integers), or it is an elementwise operator that the
engine computes in the same kernel as the int8 operator before it (a bias, an activation, a residual sum).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from ipj_edge.bundles.manifest import OperatorCount
from ipj_edge_converters.openvino.file import import_openvino

_FLOAT = {"FP64", "FP32", "FP16", "BF16"}
_EIGHT_BITS = {"I8", "U8", "I4", "U4"}
_BOOKKEEPING = {"Const", "Parameter", "Result", "Convert", "FakeQuantize", "ShapeOf", "ReadValue", "Assign"}
_MOVES = {
    "BatchToSpace", "Broadcast", "Concat", "DepthToSpace", "Gather", "GatherElements", "GatherND", "Pad",
    "Reshape", "Reverse", "ReverseSequence", "ShuffleChannels", "Slice", "SpaceToBatch", "SpaceToDepth", "Split",
    "Squeeze", "StridedSlice", "Tile", "Transpose", "Unsqueeze", "VariadicSplit",
}  # fmt: skip
_ELEMENTWISE = {
    "Abs", "Add", "Clamp", "Divide", "Elu", "Exp", "Gelu", "HSigmoid", "HSwish", "HardSigmoid", "Maximum",
    "Minimum", "Mish", "Multiply", "Negative", "PReLU", "Power", "ReLU", "Selu", "Sigmoid", "SoftPlus",
    "SoftSign", "Sqrt", "SquaredDifference", "Subtract", "Swish", "Tanh",
}  # fmt: skip
_PRODUCTS = {"Convolution", "Deconvolution", "FullyConnected", "MatMul", "RNNCell", "RNNSeq"}


class _Layer(NamedTuple):
    name: str
    kind: str
    precision: str
    levels: int
    inputs: tuple[str, ...]


def count_operators(path: Path, *, all_float: bool = False) -> OperatorCount:
    """Count the operators of a saved file, the bodies of loops and branches included.

    Args:
        path: The file.
        all_float: The engine computes all of them in floating point, whatever the file would allow.
    """
    root = ElementTree.parse(path).getroot()
    total = 0
    floats: list[str] = []
    for graph in root.iter():
        if graph.find("layers") is not None:
            computing, in_float = _Graph(graph).count()
            total += len(computing)
            floats += computing if all_float else in_float
    return OperatorCount(total=total, float_operators=tuple(floats))


def in_integers(path: Path) -> bool:
    """Say whether the engine takes an integer kernel for any product of a file, or has no product to say it of.

    The operators of a file that was quantized elsewhere are no promise: the engine has kernels for some layouts of
    scales and zero points only, and computes the others in float32.
    """
    openvino = import_openvino()
    compiled = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    facts = [operator.get_rt_info() for operator in compiled.get_runtime_model().get_ops()]
    kernels = {each["runtimePrecision"].value for each in facts if each["layerType"].value in _PRODUCTS}
    return not kernels or bool(kernels & {"i8", "u8"})


class _Graph:
    """One graph of a file: its layers by id, and what each hands on.

    What a layer hands on is ``constant``, ``int8`` (on an 8-bit grid), ``sum`` (the wide result of an int8
    operator) or ``float``.
    """

    def __init__(self, graph: ElementTree.Element) -> None:
        sources: dict[str, list[str]] = {}
        for edge in sorted(graph.iterfind("edges/edge"), key=lambda edge: int(edge.attrib["to-port"])):
            sources.setdefault(edge.attrib["to-layer"], []).append(edge.attrib["from-layer"])
        self._layers = {
            layer.attrib["id"]: _layer(layer, tuple(sources.get(layer.attrib["id"], ())))
            for layer in graph.iterfind("layers/layer")
        }
        self._fixed: set[str] = set()
        self._given: dict[str, str] = {}
        for identity, layer in self._layers.items():  # the file lists every layer after its inputs
            if layer.kind == "Const" or (layer.inputs and self._fixed.issuperset(layer.inputs)):
                self._fixed.add(identity)
            self._given[identity] = self._gives(identity, layer)

    def count(self) -> tuple[list[str], list[str]]:
        """Return the names of the operators that compute, and of those that do in floating point."""
        computing = {key: layer for key, layer in self._layers.items() if self._computes(key, layer)}
        in_float = [layer.name for key, layer in computing.items() if self._given[key] == "float"]
        return [layer.name for layer in computing.values()], in_float

    def _computes(self, identity: str, layer: _Layer) -> bool:
        plumbing = layer.kind in _BOOKKEEPING or layer.kind in _MOVES or identity in self._fixed
        return layer.precision in _FLOAT and not plumbing and not self._dequantizes(layer)

    def _gives(self, identity: str, layer: _Layer) -> str:
        fallback = "constant" if identity in self._fixed else "float"
        if layer.kind == "FakeQuantize":
            return "int8" if layer.levels <= 256 else fallback
        if layer.kind in ("Const", "Parameter"):
            return "int8" if layer.precision in _EIGHT_BITS else fallback
        if self._dequantizes(layer):
            return "int8"
        taken = self._taken(layer)
        if layer.kind == "Convert" or layer.kind in _MOVES:
            return next((worst for worst in ("float", "sum", "int8") if worst in taken), fallback)
        return "constant" if identity in self._fixed else self._computed(layer, taken)

    @staticmethod
    def _computed(layer: _Layer, taken: set[str]) -> str:
        if layer.kind in _ELEMENTWISE:
            return "sum" if "float" not in taken and taken & {"int8", "sum"} else "float"
        if taken == {"int8"}:
            return "int8" if layer.kind == "MaxPool" else "sum"
        return "float"

    def _taken(self, layer: _Layer) -> set[str]:
        kept = _FLOAT | _EIGHT_BITS  # shapes, axes and indices are not data
        return {self._given[key] for key in layer.inputs if self._layers[key].precision in kept}

    def _dequantizes(self, layer: _Layer) -> bool:
        """Say whether this is the scale, or the zero point, of a tensor stored as 8-bit integers."""
        if layer.kind not in ("Subtract", "Multiply") or not layer.inputs:
            return False
        source = self._layers[layer.inputs[0]]
        if source.kind == "Convert":
            return self._layers[source.inputs[0]].precision in _EIGHT_BITS
        return source.kind == "Subtract" and layer.kind == "Multiply" and self._dequantizes(source)


def _layer(element: ElementTree.Element, sources: tuple[str, ...]) -> _Layer:
    data = element.find("data")
    port = element.find("output/port")
    return _Layer(
        name=element.attrib["name"],
        kind=element.attrib["type"],
        precision="" if port is None else port.attrib.get("precision", ""),
        levels=0 if data is None else int(data.attrib.get("levels", 0)),
        inputs=sources,
    )
