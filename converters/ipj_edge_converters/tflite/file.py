"""What a .tflite file says about itself, read from the flatbuffer without running it.

Format: TensorFlow Lite schema version 3 (``schema.fbs``), through the reader ai-edge-litert generates from it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

from ipj_edge.bundles.manifest import OperatorCount
from ipj_edge.errors import ConversionError
from ipj_edge.plugins import needs
from ipj_edge.values import Quantization

IDENTIFIER = b"TFL3"
# The schema asks for 16 bytes (`force_align: 16` on Buffer.data): engines read weights in place.
_BUFFER_ALIGNMENT = 16
_FLOATS = frozenset({"float16", "float32", "float64", "bfloat16"})
_CONVERSIONS = frozenset({"QUANTIZE", "DEQUANTIZE", "CAST"})
# Products, which have kernels that take float data and int8 weights.
_PRODUCTS = frozenset(
    {
        *("BATCH_MATMUL", "BIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_RNN", "CONV_2D", "DEPTHWISE_CONV_2D"),
        *("FULLY_CONNECTED", "LSTM", "RNN", "SVDF", "UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN"),
    }
)
# These run other subgraphs, whose operators are counted there, or fetch and keep values.
_CALLS = frozenset(
    (
        *("IF", "WHILE", "CALL", "CALL_ONCE", "STABLEHLO_COMPOSITE"),
        *("VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE"),
    )
)


class TfliteTensor(msgspec.Struct, frozen=True, kw_only=True):
    """One input or output as the file describes it.

    Attributes:
        argument: Its name in the signature, e.g. ``args_0``.
        name: Name of the tensor; what `get_input_details` of the engine shows.
        shape: Sizes.
        dtype: numpy name of the dtype.
        quantization: Set for an affine integer tensor of real values.
    """

    argument: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    quantization: Quantization | None


class TfliteFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was read from a file: inputs and outputs of its only signature, and its operators."""

    inputs: tuple[TfliteTensor, ...]
    outputs: tuple[TfliteTensor, ...]
    operators: OperatorCount


def parse(data: bytes) -> Any:
    """Return the file as the schema's object tree (``ModelT``).

    Raises:
        ConversionError: the bytes are no .tflite file.
    """
    if data[4:8] != IDENTIFIER:
        raise ConversionError("not a .tflite file: bytes 4 to 8 are not 'TFL3'; convert the model again")
    try:
        return schema().ModelT.InitFromPackedBuf(data, 0)
    except (struct.error, TypeError, ValueError, IndexError) as error:
        raise ConversionError(f"the .tflite file is damaged ({error}); convert the model again") from error


def pack(model: Any) -> bytes:
    """Serialize an object tree whose buffers hold their data: all of them inline, aligned as the schema asks."""
    import flatbuffers  # type: ignore[import-untyped]

    builder = flatbuffers.Builder(1024)
    model.buffers = [_inline_buffer(buffer) for buffer in model.buffers]
    builder.Finish(model.Pack(builder), file_identifier=IDENTIFIER)
    return bytes(builder.Output())


def inlined(data: bytes) -> bytes:
    """Return the file with every buffer inside its flatbuffer; the same bytes when that is so already.

    ai-edge-quantizer appends buffers behind the flatbuffer from 256 KiB on, which OpenVINO cannot read.
    """
    model = parse(data)
    outside = [buffer for buffer in model.buffers if buffer.offset > 1]
    if not outside and not any(operator.largeCustomOptionsOffset > 1 for _, operator in operators_of(model)):
        return data
    for buffer in outside:
        buffer.data = _bytes_at(data, buffer.offset, buffer.size)
    for _, operator in operators_of(model):
        if operator.largeCustomOptionsOffset > 1:
            offset, size = operator.largeCustomOptionsOffset, operator.largeCustomOptionsSize
            operator.customOptions = _bytes_at(data, offset, size)
            operator.largeCustomOptionsOffset = operator.largeCustomOptionsSize = 0
    return pack(model)


def read_facts(data: bytes) -> TfliteFacts:
    """Read inputs, outputs and operators of a file with one signature.

    Raises:
        ConversionError: damaged, or not exactly one signature, or one that does not fit its graph.
    """
    model = parse(data)
    signature = only_signature(model)
    graph = model.subgraphs[signature.subgraphIndex]
    for side, tensors in ((signature.inputs, graph.inputs), (signature.outputs, graph.outputs)):
        stray = [text(entry.name) for entry in side if entry.tensorIndex not in list(tensors)]
        if stray:
            raise ConversionError(f"the signature of the .tflite file names {stray}, which its graph does not have")
    return TfliteFacts(
        inputs=tuple(_tensor(graph, entry) for entry in signature.inputs),
        outputs=tuple(_tensor(graph, entry) for entry in signature.outputs),
        operators=count_operators(model),
    )


def only_signature(model: Any) -> Any:
    """Return the signature of a file that has exactly one.

    Raises:
        ConversionError: it has none, or several.
    """
    signatures = model.signatureDefs or []
    if len(signatures) != 1:
        raise ConversionError(f"the .tflite file has {len(signatures)} signatures where one was expected")
    return signatures[0]


def count_operators(model: Any) -> OperatorCount:
    """Count the operators of all subgraphs that compute, and name those that compute in floating point.

    An operator computes in floating point when it produces, or takes as a variable, a floating-point tensor: an
    ARG_MAX over floats does, a convolution with int8 data and int32 bias does not. Nor does one with float tensors
    and a constant int8 weight: its kernel quantizes the input anew in each inference.
    """
    names = operator_names(model)
    total = 0
    floats = []
    for graph, operator in operators_of(model):
        name = names[operator.opcodeIndex]
        if name in _CONVERSIONS or name in _CALLS:
            continue
        total += 1
        touched = present(graph, operator.outputs)
        touched += [tensor for tensor in present(graph, operator.inputs) if not is_constant(model, tensor)]
        if any(dtype_of(tensor) in _FLOATS for tensor in touched) and not _is_hybrid(model, graph, operator, name):
            made = present(graph, operator.outputs)
            floats.append(f"{name}:{text(made[0].name) if made else ''}")
    return OperatorCount(total=total, float_operators=tuple(floats))


def _is_hybrid(model: Any, graph: Any, operator: Any, name: str) -> bool:
    """Say whether an operator multiplies float data with an int8 weight, which its kernel does in integers."""
    weights = (tensor for tensor in present(graph, operator.inputs) if is_constant(model, tensor))
    return name in _PRODUCTS and any(dtype_of(tensor) == "int8" for tensor in weights)


def operator_names(model: Any) -> list[str]:
    """Return the name of every operator code: the schema's, or a custom operator's own."""
    builtin = schema().BuiltinOperator
    known = {value: name for name, value in vars(builtin).items() if isinstance(value, int)}
    names = []
    for code in model.operatorCodes:
        # Codes above 127 stand in the newer field; the older then holds a placeholder (schema.fbs, OperatorCode).
        number = max(code.builtinCode, code.deprecatedBuiltinCode)
        names.append(text(code.customCode) if number == builtin.CUSTOM else known.get(number, f"OPERATOR_{number}"))
    return names


def text(name: bytes | str | None) -> str:
    """Return a string of the file as text."""
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name or ""


def schema() -> Any:
    """Return the module that ai-edge-litert generates from the schema."""
    with needs("convert"):
        from ai_edge_litert import schema_py_generated
    return schema_py_generated


def operators_of(model: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every operator with its graph, all graphs of the file one after the other."""
    for graph in model.subgraphs:
        for operator in graph.operators or []:
            yield graph, operator


def present(graph: Any, indices: Any) -> list[Any]:
    """Return the tensors behind the indices; −1 stands for an optional input that is absent."""
    return [] if indices is None else [graph.tensors[index] for index in indices if index >= 0]


def is_constant(model: Any, tensor: Any) -> bool:
    """Say whether a tensor's values are in the file. Files made by hand may leave out the list of buffers."""
    if tensor.buffer >= len(model.buffers or []):
        return False
    buffer = model.buffers[tensor.buffer]
    return (buffer.data is not None and len(buffer.data) > 0) or buffer.size > 1


def dtype_of(tensor: Any) -> str:
    """Return the numpy name of a tensor's dtype: the schema's type names are numpy's in capitals."""
    return _dtype_names().get(tensor.type, f"type_{tensor.type}").lower()


@cache
def _dtype_names() -> dict[int, str]:
    return {value: name for name, value in vars(schema().TensorType).items() if isinstance(value, int)}


def _tensor(graph: Any, entry: Any) -> TfliteTensor:
    return described(graph.tensors[entry.tensorIndex], text(entry.name))


def described(tensor: Any, argument: str) -> TfliteTensor:
    """Return an input or output under the name callers give it.

    Raises:
        ConversionError: it has a scale per channel.
    """
    return TfliteTensor(
        argument=argument,
        name=text(tensor.name),
        shape=shape_of(tensor),
        dtype=dtype_of(tensor),
        quantization=_quantization(tensor),
    )


def shape_of(tensor: Any) -> tuple[int, ...]:
    """Return the sizes of a tensor; a size the file leaves open is the one it was exported with, mostly 1."""
    return () if tensor.shape is None else tuple(int(size) for size in tensor.shape)


def _quantization(tensor: Any) -> Quantization | None:
    found = tensor.quantization
    if found is None or found.scale is None or len(found.scale) == 0:
        return None
    if len(found.scale) > 1:
        raise ConversionError(f"'{text(tensor.name)}' has a scale per channel; inputs and outputs need one scale")
    zero_points = found.zeroPoint if found.zeroPoint is not None and len(found.zeroPoint) else (0,)
    return Quantization(scale=float(found.scale[0]), zero_point=int(zero_points[0]))


def _bytes_at(data: bytes, offset: int, size: int) -> bytes:
    if offset + size > len(data):
        raise ConversionError("the .tflite file is cut short: a buffer lies behind its end; convert the model again")
    return data[offset : offset + size]


def _inline_buffer(buffer: Any) -> Any:
    """Return the buffer as one that packs its bytes in one block, aligned."""
    generated = schema()

    class AlignedBuffer(generated.BufferT):  # type: ignore[misc,name-defined]
        def Pack(self, builder: Any) -> Any:
            position = None
            if self.data is not None and len(self.data) > 0:
                position = _aligned_vector(builder, bytes(self.data))
            generated.BufferStart(builder)
            if position is not None:
                generated.BufferAddData(builder, position)
            return generated.BufferEnd(builder)

    aligned = AlignedBuffer()
    aligned.data = buffer.data
    return aligned


def _aligned_vector(builder: Any, content: bytes) -> Any:
    builder.StartVector(1, len(content), _BUFFER_ALIGNMENT)
    head = builder.Head() - len(content)
    builder.head = head
    builder.Bytes[head : head + len(content)] = content
    return builder.EndVector()
