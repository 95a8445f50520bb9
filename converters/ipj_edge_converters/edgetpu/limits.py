"""What the Edge TPU runs, as its vendor publishes it.

Sources: Coral, "TensorFlow models on the Edge TPU", model requirements and table of supported operations, for runtime
version 14 and compiler version 16 (the last ones); the versions of operators that compiler 16 can parse from
TensorFlow 2.5, which it is built on (``lite/kernels/register.cc``); where the compiler is known to be stricter, the
reports are named below. Reasons are worded as the compiler words them, so that they can be searched for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

import msgspec

from ipj_edge_converters.edgetpu.operator import GraphOperator, shapes
from ipj_edge_converters.tflite import file as tflite_file

NOT_SUPPORTED = "Operation not supported"
VERSION = "Operation version not supported"
DATA_TYPE = "Operation is working on an unsupported data type"
RANK = "Tensor has unsupported rank (up to 3 innermost dimensions mapped)"
NOT_CONSTANT = "Filter, bias, or other param is not constant at compile-time"
DYNAMIC = "dynamic-sized tensors"
SECOND_SUBGRAPH = "More than one subgraph is not supported"

_EIGHT_BITS = frozenset({"int8", "uint8"})
_SOFTMAX_ELEMENTS = 16_000
_NO_ACTIVATION = 0

OperatorCheck = Callable[[GraphOperator], str]


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """What the Edge TPU asks of one operator.

    Attributes:
        version: Highest version of the operator that the compiler takes.
        check: Returns why this one is not taken, or an empty string.
    """

    version: int
    check: OperatorCheck | None = None


def _no_activation(operator: GraphOperator) -> str:
    fused = operator.option("fusedActivationFunction") != _NO_ACTIVATION
    return "a fused activation function is not supported" if fused else ""


def _concatenation(operator: GraphOperator) -> str:
    constants = [tensor for tensor in operator.reads if tensor is not None and operator.is_constant(tensor)]
    if constants and len(operator.reads) != 2:
        return "with a constant input, only 2 inputs are supported"
    return _no_activation(operator)


def _constant_weights(operator: GraphOperator) -> str:
    weights = [tensor for tensor in operator.reads[1:] if tensor is not None]
    return "" if all(operator.is_constant(tensor) for tensor in weights) else NOT_CONSTANT


def _conv(operator: GraphOperator) -> str:
    if operator.option("dilationWFactor") != operator.option("dilationHFactor"):
        return "dilation differs in x and y"
    return _constant_weights(operator)


def _fully_connected(operator: GraphOperator) -> str:
    if operator.option("weightsFormat") != 0:
        return "only the default format of weights is supported"
    if any(prod(shape[:-1]) > 1 for shape in shapes(operator.makes)):
        return "the output has more than one dimension"
    weights = operator.reads[1]
    scales = None if weights is None or weights.quantization is None else weights.quantization.scale
    if scales is not None and len(scales) > 1:
        return "the weights have a scale per channel, which the compiler's fully connected kernel does not know"
    return _constant_weights(operator)


def _mean(operator: GraphOperator) -> str:
    axes = operator.axes(1)
    if axes is None:
        return NOT_CONSTANT
    return "reduction in the batch dimension is not supported" if 0 in axes and _batched(operator) else ""


def _not_along_batch(operator: GraphOperator) -> str:
    axis = operator.option("axis") % max(1, len(tflite_file.shape_of(operator.makes[0])))
    return "packing in the batch dimension is not supported" if axis == 0 else ""


def _split(operator: GraphOperator) -> str:
    axis = operator.values(0)
    return "splitting in the batch dimension is not supported" if axis is None or axis[0] == 0 else ""


def _pad(operator: GraphOperator) -> str:
    amounts = operator.values(1)
    if amounts is None:
        return NOT_CONSTANT
    rank = len(tflite_file.shape_of(operator.reads[0]))
    return "padding in the batch dimension is not supported" if rank == 4 and any(amounts[:2]) else ""


def _prelu(operator: GraphOperator) -> str:
    shape = tflite_file.shape_of(operator.reads[1])
    return "alpha has more than one dimension" if prod(shape[:-1]) > 1 else _constant_weights(operator)


def _resize(operator: GraphOperator) -> str:
    return "" if all(prod(shape[:-3]) == 1 for shape in shapes(operator.data())) else RANK


def _softmax(operator: GraphOperator) -> str:
    shape = tflite_file.shape_of(operator.reads[0])
    if prod(shape[:-1]) > 1:
        return "the input has more than one dimension"
    return f"more than {_SOFTMAX_ELEMENTS:,} elements" if prod(shape) > _SOFTMAX_ELEMENTS else ""


def _transpose_conv(operator: GraphOperator) -> str:
    # Output shape, weights, input, bias: the input flows.
    fixed = [tensor for tensor in (*operator.reads[:2], *operator.reads[3:]) if tensor is not None]
    return "" if all(operator.is_constant(tensor) for tensor in fixed) else NOT_CONSTANT


def _squeeze(operator: GraphOperator) -> str:
    before, after = tflite_file.shape_of(operator.reads[0]), tflite_file.shape_of(operator.makes[0])
    ones = len(before) - len(after)
    return "" if before[ones:] == after else "only leading dimensions of size 1 can be squeezed"


def _strided_slice(operator: GraphOperator) -> str:
    strides = operator.values(3)
    if strides is None:
        return NOT_CONSTANT
    masked = operator.option("ellipsisMask") or operator.option("newAxisMask")
    return "only strides of 1, without ellipsis and new axes, are supported" if masked or set(strides) != {1} else ""


def _batched(operator: GraphOperator) -> bool:
    return tflite_file.shape_of(operator.reads[0])[0] > 1


# Versions: 5 for FULLY_CONNECTED (9 is known to be refused, nothing above 5 to be taken), 2 for QUANTIZE
# (google-coral/edgetpu issue 879).
LIMITS: Mapping[str, Limit] = {
    "ADD": Limit(version=4),
    "AVERAGE_POOL_2D": Limit(version=3, check=_no_activation),
    "CONCATENATION": Limit(version=3, check=_concatenation),
    "CONV_2D": Limit(version=5, check=_conv),
    "DEPTHWISE_CONV_2D": Limit(version=6, check=_conv),
    "EXPAND_DIMS": Limit(version=1),
    "FULLY_CONNECTED": Limit(version=5, check=_fully_connected),
    "L2_NORMALIZATION": Limit(version=2),
    "LOGISTIC": Limit(version=3),
    "MAXIMUM": Limit(version=4),
    "MAX_POOL_2D": Limit(version=3, check=_no_activation),
    "MEAN": Limit(version=3, check=_mean),
    "MINIMUM": Limit(version=4),
    "MUL": Limit(version=5),
    "PACK": Limit(version=3, check=_not_along_batch),
    "PAD": Limit(version=4, check=_pad),
    "PRELU": Limit(version=1, check=_prelu),
    "QUANTIZE": Limit(version=2),
    "REDUCE_MAX": Limit(version=3, check=_mean),
    "REDUCE_MIN": Limit(version=3, check=_mean),
    "RELU": Limit(version=3),
    "RELU6": Limit(version=3),
    "RELU_N1_TO_1": Limit(version=1),
    "RESHAPE": Limit(version=1),
    "RESIZE_BILINEAR": Limit(version=4, check=_resize),
    "RESIZE_NEAREST_NEIGHBOR": Limit(version=4, check=_resize),
    "RSQRT": Limit(version=2),
    "SLICE": Limit(version=5),
    "SOFTMAX": Limit(version=3, check=_softmax),
    "SPACE_TO_DEPTH": Limit(version=2),
    "SPLIT": Limit(version=4, check=_split),
    "SQUARED_DIFFERENCE": Limit(version=2),
    "SQUEEZE": Limit(version=2, check=_squeeze),
    "STRIDED_SLICE": Limit(version=6, check=_strided_slice),
    "SUB": Limit(version=5),
    "SUM": Limit(version=2, check=_mean),
    "TANH": Limit(version=3),
    "TRANSPOSE": Limit(version=5),
    "TRANSPOSE_CONV": Limit(version=3, check=_transpose_conv),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": Limit(version=3),
}


def why_not(operator: GraphOperator) -> str:
    """Return why the Edge TPU does not run an operator, or an empty string when nothing published speaks against it."""
    limit = LIMITS.get(operator.type)
    if limit is None:
        return NOT_SUPPORTED
    if operator.version > limit.version:
        return f"{VERSION} (version {operator.version}, up to {limit.version} is)"
    return _numbers(operator) or _sizes(operator) or (limit.check(operator) if limit.check is not None else "")


def _numbers(operator: GraphOperator) -> str:
    # Recurrent operators keep 16-bit cells and float scratch tensors, which are not what flows through.
    flowing = [tensor for tensor in operator.data() if not tensor.isVariable]
    strange = {tflite_file.dtype_of(tensor) for tensor in flowing} - _EIGHT_BITS
    return f"{DATA_TYPE} ({', '.join(sorted(strange))})" if strange else ""


def _sizes(operator: GraphOperator) -> str:
    for tensor in operator.data():
        signature = tensor.shapeSignature
        if signature is not None and any(size < 0 for size in list(signature)[1:]):
            return f"{DYNAMIC} are not supported ('{tflite_file.text(tensor.name)}')"
        if prod(tflite_file.shape_of(tensor)[:-3]) > 1:
            return RANK
    return ""
