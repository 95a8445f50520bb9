"""What an OpenVINO IR file says of itself: the XML is read, nothing is compiled or run."""

from __future__ import annotations

import hashlib
from math import prod
from pathlib import Path
from xml.etree import ElementTree

from ipj_edge.bundles.file_report import FileOperator, FileReport, FileTensor
from ipj_edge.errors import SourceError, reading
from ipj_edge.protocols import FileInspector
from ipj_edge_converters.openvino.operators import count_operators
from ipj_edge_converters.sources.reading import read_file

_DTYPES = {
    "FP64": "float64", "FP32": "float32", "FP16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U8": "uint8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "BOOL": "bool",
    "boolean": "bool",
}  # fmt: skip
# They multiply and have no formula here, or run graphs of their own.
_UNCOUNTED = frozenset(
    ("GRUCell", "GRUSequence", "LSTMCell", "LSTMSequence", "RNNCell", "RNNSequence", "Einsum", "TensorIterator", "Loop")
)
_WEIGHT_DTYPES = frozenset({"float64", "float32", "float16", "bfloat16", "int8", "uint8", "i4", "u4"})
OpenShape = tuple[int | str, ...]


class InspectOpenvino:
    """Reads .xml files of OpenVINO, with the .bin beside them."""

    name = "openvino"

    def accepts(self, path: Path) -> bool:
        """Say whether a file's name ends in ``.xml``."""
        return path.suffix == ".xml"

    def inspect(self, path: Path) -> FileReport:
        """Read a file.

        Raises:
            SourceError: missing, no OpenVINO IR, or without its weights.
        """
        data = read_file(path)
        with reading(path.name, SourceError):
            return self._report(path, data)

    def _report(self, path: Path, data: bytes) -> FileReport:
        root = _root(data, path.name)
        weights = path.with_suffix(".bin")
        if not weights.is_file():
            raise SourceError(f"{weights.name} is not beside {path.name}: copy both files")
        layers = [_Layer(element) for element in root.iterfind("layers/layer")]
        macs = [layer.macs() for layer in layers]
        unknown = sorted({layer.type for layer, count in zip(layers, macs, strict=True) if count is None})
        counted, constants = count_operators(path), _constants(layers)
        return FileReport(
            file=path.name,
            kind=self.name,
            format_version=f"IR {root.attrib.get('version', '?')}",
            size_bytes=len(data) + weights.stat().st_size,
            sha256=hashlib.sha256(data).hexdigest(),
            inputs=tuple(layer.tensor() for layer in layers if layer.type == "Parameter"),
            outputs=_outputs(root, layers),
            operators=tuple(layer.operator() for layer in layers if layer.type not in ("Const", "Parameter", "Result")),
            computing=counted.total,
            float_operators=counted.float_operators,
            macs=None if unknown else sum(count or 0 for count in macs),
            macs_reason=f"no formula, or dynamic sizes, for {', '.join(unknown)}" if unknown else "",
            parameters=sum(constants.values()),
            weights=constants,
            dynamic=_dynamic(layers),
            notes=() if unknown else ("multiply-accumulates are those of one batch as the file declares it",),
        )


class _Layer:
    """One layer of the file."""

    def __init__(self, element: ElementTree.Element) -> None:
        self.identity = element.attrib["id"]
        self.name, self.type = element.attrib["name"], element.attrib["type"]
        data = element.find("data")
        self.data = {} if data is None else dict(data.attrib)
        self.reads = [_shape(port) for port in element.iterfind("input/port")]
        port = element.find("output/port")
        self.makes = None if port is None else _shape(port)
        precision = "" if port is None else port.attrib.get("precision", "")
        self.dtype = _DTYPES.get(precision, precision.lower())
        self.names = "" if port is None else port.attrib.get("names", "")

    def tensor(self) -> FileTensor:
        return FileTensor(name=self.names.split(",")[0] or self.name, shape=self.makes or (), dtype=self.dtype)

    def operator(self) -> FileOperator:
        return FileOperator(name=self.name, type=self.type, shape=self.makes, dtype=self.dtype, macs=self.macs())

    def macs(self) -> int | None:
        """Count multiply-accumulates; None where there is no formula or a size is not known."""
        if self.type in _UNCOUNTED:
            return None
        factor = _factor(self)
        if factor == 0:
            return 0
        sizes = (*(self.makes or ()), factor)
        return None if any(isinstance(size, str) for size in sizes) else prod(int(size) for size in sizes)


def _factor(layer: _Layer) -> int | str:
    """Return the products behind each value a layer makes; 0 for layers that multiply nothing by weights."""
    if layer.type in ("Convolution", "GroupConvolution"):
        kept = layer.reads[1][1:] if layer.type == "Convolution" else layer.reads[1][2:]
        return "?" if any(isinstance(size, str) for size in kept) else prod(int(size) for size in kept)
    if layer.type == "MatMul":
        left = layer.reads[0]
        return left[-2] if layer.data.get("transpose_a") == "true" else left[-1]
    return 0


def _root(data: bytes, file: str) -> ElementTree.Element:
    try:
        root = ElementTree.fromstring(data)
    except ElementTree.ParseError as error:
        raise SourceError(f"{file} is no XML: {error}") from error
    if root.tag != "net" or root.find("layers") is None:
        raise SourceError(f"{file} is no OpenVINO IR: it has no <net> with <layers>")
    return root


def _shape(port: ElementTree.Element) -> OpenShape:
    sizes = [int(size.text or 0) for size in port.iterfind("dim")]
    return tuple(size if size >= 0 else "?" for size in sizes)


def _outputs(root: ElementTree.Element, layers: list[_Layer]) -> tuple[FileTensor, ...]:
    by_identity = {layer.identity: layer for layer in layers}
    results = {layer.identity for layer in layers if layer.type == "Result"}
    feeding = [edge.attrib["from-layer"] for edge in root.iterfind("edges/edge") if edge.attrib["to-layer"] in results]
    return tuple(by_identity[identity].tensor() for identity in feeding)


def _constants(layers: list[_Layer]) -> dict[str, int]:
    counted: dict[str, int] = {}
    for layer in layers:
        if layer.type == "Const" and layer.dtype in _WEIGHT_DTYPES and layer.makes is not None:
            counted[layer.dtype] = counted.get(layer.dtype, 0) + prod(int(size) for size in layer.makes)
    return counted


def _dynamic(layers: list[_Layer]) -> tuple[str, ...]:
    return tuple(
        f"{layer.tensor().name}: {axis}"
        for layer in layers
        if layer.type == "Parameter"
        for axis, size in enumerate(layer.makes or ())
        if isinstance(size, str)
    )


_: type[FileInspector] = InspectOpenvino
