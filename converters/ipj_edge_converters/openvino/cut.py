"""Stages for OpenVINO: the stages of an ONNX file, float or QDQ, each converted on its own.

OpenVINO's own int8 graph (NNCF) was cut too, for comparison (``benchmarks/runtime/openvino_own_graph.py``; ResNet-20
with three exits, one thread, AVX-512 VNNI, openvino 2026.4.1). Both chains were bit-equal to their whole graphs at
batch 1, 2, 32 and 1,000. NNCF quantizes each reader of a tensor on its own and leaves some in float, so that its
boundaries carry float32, four times the bytes to hand over and to compact:

=====================  ===========  ==============================
figure                 QDQ, cut     NNCF's graph, cut at its nodes
=====================  ===========  ==============================
batch 1, whole         322 µs       325 µs
batch 1, chain         384 µs       436 µs
one boundary           31 µs        55 µs
batch 32, whole        9.3 ms       9.3 ms
batch 32, chain        11.1 ms      12.9 ms
accuracy, early exits  .620, .768   .627, .765
accuracy, last exit    .912         .917
=====================  ===========  ==============================

Of an int8 boundary, 9 µs is the call of one more request; the rest is the engine bringing the tensor from its inner
layout to NCHW and back. An NHWC boundary (PrePostProcessor) was slower: the engine then transposes and reorders.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from ipj_edge.errors import ConversionError
from ipj_edge.plugins import needs
from ipj_edge.protocols import StageCut
from ipj_edge.values import Port, TensorSpec
from ipj_edge_converters.onnx.cut import cut_onnx
from ipj_edge_converters.onnx.files import load_onnx, save_onnx
from ipj_edge_converters.openvino.file import XML_NAME, import_openvino, write
from ipj_edge_converters.openvino.onnx_reading import onnx_names, read_onnx
from ipj_edge_converters.openvino.operators import count_operators


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
    save_onnx(_requantized(load_onnx(onnx_path), cut), onnx_path)
    model = read_onnx(onnx_path)
    model.set_friendly_name(cut.name)
    write(model, folder, onnx_names(onnx_path))
    saved = import_openvino().Core().read_model(folder / XML_NAME)
    for port in cut.takes:
        _check(saved.input(port.engine_name), port)
    for port in cut.adds:
        _check(saved.output(port.engine_name), port)
    return msgspec.structs.replace(cut, file=f"{cut.name}/{XML_NAME}", operators=count_operators(folder / XML_NAME))


def _requantized(model: Any, cut: StageCut) -> Any:
    """Give every int8 output that is also dequantized within the stage a quantizer of its own, behind the dequantizer.

    It changes no value. Without it openvino 2026.4.1 leaves rows of a mean over such a tensor unwritten, from some
    batch size on (13 for a mean over the last axis of (batch, 12, 32), 38 over the middle one), where the tensor has
    three axes; with four, as in convolutional networks, it does not, and the detour would cost time.
    """
    with needs("convert"):
        from onnx import helper
    names = {port.engine_name for port in cut.adds if port.dtype in ("int8", "uint8") and len(port.shape) != 4}
    quantizers = [node for node in model.graph.node if node.op_type == "QuantizeLinear" and names & {*node.output}]
    for quantizer in quantizers:
        name, inner = quantizer.output[0], f"{quantizer.output[0]}/inner"
        reader = next((node for node in model.graph.node if name in node.input), None)
        if reader is None or reader.op_type != "DequantizeLinear":
            continue
        quantizer.output[0] = inner
        for node in model.graph.node:
            node.input[:] = [inner if each == name else each for each in node.input]
        again = helper.make_node("QuantizeLinear", [reader.output[0], *quantizer.input[1:]], [name])
        again.attribute.extend(quantizer.attribute)
        model.graph.node.append(again)
    return model


def _check(engine_port: Any, port: Port) -> None:
    """Refuse a saved stage that would not fit its neighbours."""
    dtype = engine_port.get_element_type().to_dtype().name
    rank = engine_port.get_partial_shape().rank
    if dtype != port.dtype or rank.is_dynamic or rank.get_length() != len(port.shape):
        raise ConversionError(
            f"openvino made {engine_port.get_partial_shape()} {dtype} of the tensor {port.name!r}, which is "
            f"{list(port.shape)} {port.dtype} in the model"
        )
