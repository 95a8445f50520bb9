"""Dynamic int8 for ONNX, by onnxruntime's own quantizer: weights are int8, each inference finds its own ranges.

Only products with constant weights gain by it: MatMul, Gemm (turned into MatMul) and LSTM, which have fast integer
kernels on CPUs. Convolutions are left in float: their dynamic form, ConvInteger, is the slow reference kernel
(measured in ``benchmarks/conversion/int8_gain.py``). onnxruntime 1.32 has no dynamic form of GRU, which stays in
float; the counts read back from the file say so. Tables of Gather stay in float too: int8 ones cost accuracy, save no
arithmetic.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ipj_edge.errors import ConversionError, UnsupportedError, typed_line
from ipj_edge.plugins import needs
from ipj_edge_converters.onnx.files import load_onnx
from ipj_edge_converters.onnx.graphs import all_nodes
from ipj_edge_converters.onnx.quantize.static import kept_nodes, prepare
from ipj_edge_converters.quiet import quiet

_QUANTIZED = ["MatMul", "LSTM"]
_DYNAMIC = frozenset(("DynamicQuantizeLinear", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul"))


def quantize_dynamically(source: Path, *, keep_float: tuple[str, ...], reduce_range: bool) -> Any:
    """Quantize an ONNX file and return the model.

    Args:
        source: A float ONNX file, weights inline.
        keep_float: Patterns of operators to leave in floating point.
        reduce_range: Use 7 bits for weights, which CPUs without 8-bit dot products need to be exact.

    Raises:
        ConfigError: a pattern matches no operator.
        UnsupportedError: nothing in the model has a dynamic integer form.
        ConversionError: the quantizer failed.
    """
    with needs("convert"):
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic
    with TemporaryDirectory(prefix="ipj-edge-") as folder, quiet("root", "onnxruntime"):
        prepared, written = (Path(folder) / f"{step}.onnx" for step in ("prepared", "int8"))
        ready = prepare(load_onnx(source), source.name)
        excluded = kept_nodes(ready, keep_float)
        onnx.save_model(ready, str(prepared))
        try:
            quantize_dynamic(
                prepared,
                written,
                op_types_to_quantize=_QUANTIZED,
                per_channel=True,
                reduce_range=reduce_range,
                weight_type=QuantType.QInt8,
                nodes_to_exclude=excluded,
                extra_options={"MatMulConstBOnly": True},
            )
        except Exception as error:
            raise ConversionError(f"onnxruntime's quantizer failed: {typed_line(error)}") from error
        model = load_onnx(written)
    if not any(node.op_type in _DYNAMIC for node in all_nodes(model)):
        kinds = sorted({node.op_type for node in ready.graph.node})
        raise UnsupportedError(
            "nothing in this model can be quantized dynamically on onnxruntime (linear layers and LSTM can; it has "
            f"{', '.join(kinds)}): use --quantize static"
        )
    return model
