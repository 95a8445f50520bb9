"""What an int8 file assumes of the CPU: that sums of 8-bit products do not saturate, see microsoft/onnxruntime#6004."""

from __future__ import annotations

from typing import Any

from ipj_edge.errors import ConfigError, TargetUnavailableError
from ipj_edge.plugins import needs
from ipj_edge.protocols import ConversionTask

# Instruction sets with exact 8-bit dot products ("" = the default assumption), and those without.
_EXACT = ("", "vnni", "avx512_vnni", "avx_vnni", "arm64", "dotprod")
_SATURATING = ("sse4", "avx2", "avx512")
_AFFINE = ("QuantizeLinear", "DequantizeLinear")


def has_exact_dot_products(isa: str) -> bool:
    """Say whether an instruction set adds 8-bit products without saturating.

    Raises:
        ConfigError: the instruction set is not known.
    """
    if isa not in (*_EXACT, *_SATURATING):
        known = ", ".join(name for name in (*_EXACT, *_SATURATING) if name)
        raise ConfigError(f"unknown instruction set '{isa}'; known: {known}")
    return isa in _EXACT


def assumed_by_quantized(model: Any, task: ConversionTask) -> str:
    """Return the instruction set that an already quantized ONNX model assumes: ``vnni``, or empty for none.

    Raises:
        ConfigError: the device's instruction set is not known.
        TargetUnavailableError: the device is known to lack it.
    """
    exact = has_exact_dot_products(task.options.isa)
    if _has_seven_bit_weights(model):
        return ""
    if not exact:
        raise TargetUnavailableError(
            f"'{task.source.file}' is already quantized with 8-bit weights, which are not exact on {task.options.isa} "
            "(sums of products saturate): convert the float model, or quantize it with a reduced range"
        )
    return "vnni"


def _has_seven_bit_weights(model: Any) -> bool:
    """Say whether all int8 weights lie within −64..64; zero points, −128 after a ReLU, are no weights."""
    with needs("convert"):
        from onnx import TensorProto, numpy_helper
    zero_points = {node.input[2] for node in model.graph.node if node.op_type in _AFFINE and len(node.input) > 2}
    stored = [tensor for tensor in model.graph.initializer if tensor.data_type == TensorProto.INT8]
    weights = [tensor for tensor in stored if tensor.name not in zero_points]
    return all(abs(numpy_helper.to_array(tensor).astype("int16")).max(initial=0) <= 64 for tensor in weights)
