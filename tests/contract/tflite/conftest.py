"""Small .tflite files made operator by operator, and the pipeline over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from ipj_edge.conversion import ConvertRequest, Outcome, convert
from ipj_edge.conversion.plan.request import take_options
from ipj_edge.protocols import SourceRequest
from ipj_edge_converters.tflite import file as tflite_file
from ipj_edge_converters.tflite.source.opener import TfliteOpener


class Builder:
    """Makes a .tflite file: tensors, operators and graphs in the order they are asked for."""

    def __init__(self) -> None:
        self.model = schema.ModelT()
        self.model.version = 3
        self.model.subgraphs, self.model.operatorCodes, self.model.signatureDefs = [], [], []
        self.model.buffers = [schema.BufferT()]
        self.graph()

    def graph(self) -> int:
        """Begin another graph; return its number."""
        graph = schema.SubGraphT()
        graph.tensors, graph.operators, graph.inputs, graph.outputs = [], [], [], []
        self.model.subgraphs.append(graph)
        return len(self.model.subgraphs) - 1

    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str = "FLOAT32",
        *,
        data: np.ndarray | None = None,
        scale: float | Sequence[float] | None = None,
        zero_point: int = 0,
        open_axes: Sequence[int] = (),
        variable: bool = False,
    ) -> int:
        """Add a tensor to the last graph; return its number."""
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.type = name.encode(), list(shape), getattr(schema.TensorType, dtype)
        tensor.isVariable, tensor.buffer = variable, 0
        if open_axes:
            tensor.shapeSignature = [-1 if axis in open_axes else size for axis, size in enumerate(shape)]
        if scale is not None:
            tensor.quantization = schema.QuantizationParametersT()
            scales = [scale] if isinstance(scale, float) else list(scale)
            tensor.quantization.scale, tensor.quantization.zeroPoint = scales, [zero_point] * len(scales)
        if data is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
            tensor.buffer = len(self.model.buffers)
            self.model.buffers.append(buffer)
        tensors = self.model.subgraphs[-1].tensors
        tensors.append(tensor)
        return len(tensors) - 1

    def operator(
        self,
        kind: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        *,
        version: int = 1,
        options: tuple[str, dict[str, Any]] | None = None,
    ) -> None:
        """Add an operator to the last graph; a kind the schema does not have is a custom one."""
        code = schema.OperatorCodeT()
        number = getattr(schema.BuiltinOperator, kind, schema.BuiltinOperator.CUSTOM)
        code.builtinCode, code.deprecatedBuiltinCode, code.version = number, min(number, 127), version
        if number == schema.BuiltinOperator.CUSTOM:
            code.customCode = kind
        operator = schema.OperatorT()
        operator.opcodeIndex = len(self.model.operatorCodes)
        operator.inputs, operator.outputs = list(inputs), list(outputs)
        if options is not None:
            name, fields = options
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, name)
            operator.builtinOptions = getattr(schema, f"{name}T")()
            for field, value in fields.items():
                setattr(operator.builtinOptions, field, value)
        self.model.operatorCodes.append(code)
        self.model.subgraphs[-1].operators.append(operator)

    def ends(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Name inputs and outputs of the last graph."""
        self.model.subgraphs[-1].inputs, self.model.subgraphs[-1].outputs = list(inputs), list(outputs)

    def signature(self, key: str, graph: int, inputs: dict[str, int], outputs: dict[str, int]) -> None:
        """Add a signature."""
        signature = schema.SignatureDefT()
        signature.signatureKey, signature.subgraphIndex = key.encode(), graph
        for field, named in (("inputs", inputs), ("outputs", outputs)):
            maps = []
            for name, index in named.items():
                entry = schema.TensorMapT()
                entry.name, entry.tensorIndex = name.encode(), index
                maps.append(entry)
            setattr(signature, field, maps)
        self.model.signatureDefs.append(signature)

    def bytes(self) -> bytes:
        """Return the file."""
        return tflite_file.pack(self.model)


@pytest.fixture
def builder() -> Builder:
    """An empty file with one graph."""
    return Builder()


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Builder], Path]:
    """Write a built file: ``write(builder)``."""

    def written(made: Builder, name: str = "net.tflite") -> Path:
        path = tmp_path / name
        path.write_bytes(made.bytes())
        return path

    return written


@pytest.fixture
def open_source(tmp_path: Path) -> Callable[..., Any]:
    """Open a file as a source: ``open_source(path)``."""

    def opened(location: Path | str, **options: Any) -> Any:
        workdir = tmp_path / f"work{len(list(tmp_path.iterdir()))}"
        workdir.mkdir()
        return TfliteOpener().open(SourceRequest(location=str(location), workdir=workdir, **options))

    return opened


@pytest.fixture
def converted(tmp_path: Path) -> Callable[..., Path]:
    """Convert a file for a target and return the bundle's folder; whatever stopped it is raised."""

    def make(source: Path | str, target: str = "tflite-cpu", **options: Any) -> Path:
        request = ConvertRequest(
            source=str(source),
            targets=(target,),
            into=tmp_path / "dist",
            force=True,
            options=take_options(options),
            **options,
        )
        (outcome,) = convert(request)
        return bundle_of(outcome)

    return make


def bundle_of(outcome: Outcome) -> Path:
    if outcome.error is not None:
        raise outcome.error
    assert outcome.bundle is not None
    return outcome.bundle.path


@pytest.fixture
def scaled_sum(builder: Builder) -> Builder:
    """y = x + constant over int8, shapes (1, 3, 5), unequal scales; a signature names both."""
    fixed = np.arange(-7, 8, dtype=np.int8).reshape(1, 3, 5)
    x = builder.tensor("x_inside", (1, 3, 5), "INT8", scale=0.5, zero_point=-3)
    constant = builder.tensor("constant", (1, 3, 5), "INT8", data=fixed, scale=0.25)
    y = builder.tensor("y_inside", (1, 3, 5), "INT8", scale=0.75, zero_point=5)
    builder.operator("ADD", (x, constant), (y,), version=2, options=("AddOptions", {}))
    builder.ends((x,), (y,))
    builder.signature("serving_default", 0, {"x": x}, {"y": y})
    return builder


@pytest.fixture
def counter(builder: Builder) -> Builder:
    """y = everything seen so far + x, kept in a resource variable that starts at 100."""
    start = np.full((1, 2), 100, np.float32)

    def handle() -> int:
        made = builder.tensor("handle", (), "RESOURCE")
        options = ("VarHandleOptions", {"container": b"", "sharedName": b"total"})
        builder.operator("VAR_HANDLE", (), (made,), options=options)
        return made

    x = builder.tensor("x", (1, 2))
    builder.operator("CALL_ONCE", (), (), options=("CallOnceOptions", {"initSubgraphIndex": 1}))
    total = handle()
    before, y = builder.tensor("before", (1, 2)), builder.tensor("y", (1, 2))
    builder.operator("READ_VARIABLE", (total,), (before,), options=("ReadVariableOptions", {}))
    builder.operator("ADD", (before, x), (y,), options=("AddOptions", {}))
    builder.operator("ASSIGN_VARIABLE", (total, y), (), options=("AssignVariableOptions", {}))
    builder.ends((x,), (y,))
    builder.graph()
    total = handle()
    constant = builder.tensor("start", (1, 2), data=start)
    builder.operator("ASSIGN_VARIABLE", (total, constant), (), options=("AssignVariableOptions", {}))
    return builder
