"""Stages for OpenVINO: the stages of an ONNX file, float or QDQ, each converted on its own.

OpenVINO's own int8 graph (NNCF) was cut too, for comparison: ResNet-20 with three exits, one thread, AVX-512 VNNI,
openvino 2026.4.1. Both chains were bit-equal to their whole graphs at batch 1, 2, 32 and 1,000. NNCF quantizes each
reader of a tensor on its own and leaves some in float, so its boundaries carry float32:

==========================  ==============  ==============================
batch 1                     QDQ, cut as is  NNCF's graph, cut at its nodes
==========================  ==============  ==============================
whole graph                 573 µs          582 µs
chain of three, linked      623 µs          722 µs
one boundary                25 µs           70 µs
batch 32, whole and chain   18.2, 21.8 ms   17.7, 30.3 ms
==========================  ==============  ==============================
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from ipj_edge.errors import ConversionError
from ipj_edge.protocols import StageCut
from ipj_edge.values import Port, TensorSpec
from ipj_edge_converters.cut_onnx import cut_onnx
from ipj_edge_converters.openvino_file import XML_NAME, import_openvino, write
from ipj_edge_converters.openvino_operators import count_operators
from ipj_edge_converters.to_openvino import onnx_names, read_onnx


def cut_openvino(path: Path, exits: Sequence[str], inputs: Sequence[TensorSpec], into: Path) -> tuple[StageCut, ...]:
    """Write ``stage1/model.xml``, ``stage2/model.xml``, … and return what each takes and adds.

    Args:
        path: The whole model as ONNX, float or QDQ; its own conversion to OpenVINO is the unsplit program.
        exits: Its outputs, all of them exits, in any order; stages come sorted by depth.
        inputs: Its inputs as the source describes them.
        into: Folder to write to.

    Raises:
        ConfigError: see `cut_onnx`.
        UnsupportedError: see `cut_onnx`; or openvino has no such operator.
        ConversionError: onnxruntime cannot run the model, or openvino cannot convert a stage.
    """
    with TemporaryDirectory(prefix="ipj-edge-") as folder:
        cuts = cut_onnx(path, exits, inputs, Path(folder))
        return tuple(_converted(Path(folder) / cut.file, cut, into) for cut in cuts)


def _converted(onnx_path: Path, cut: StageCut, into: Path) -> StageCut:
    folder = into / cut.name
    folder.mkdir()
    model = read_onnx(onnx_path)
    model.set_friendly_name(cut.name)
    write(model, folder, onnx_names(onnx_path))
    saved = import_openvino().Core().read_model(folder / XML_NAME)
    for port in cut.takes:
        _check(saved.input(port.engine_name), port)
    for port in cut.adds:
        _check(saved.output(port.engine_name), port)
    return msgspec.structs.replace(cut, file=f"{cut.name}/{XML_NAME}", operators=count_operators(folder / XML_NAME))


def _check(engine_port: Any, port: Port) -> None:
    """Refuse a saved stage that would not fit its neighbours."""
    dtype = engine_port.get_element_type().to_dtype().name
    rank = engine_port.get_partial_shape().rank
    if dtype != port.dtype or rank.is_dynamic or rank.get_length() != len(port.shape):
        raise ConversionError(
            f"openvino made {engine_port.get_partial_shape()} {dtype} of the tensor {port.name!r}, which is "
            f"{list(port.shape)} {port.dtype} in the model"
        )
