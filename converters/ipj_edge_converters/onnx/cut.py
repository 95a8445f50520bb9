"""Cut an ONNX file with several exits, float or QDQ, into one file per stage.

A quantized graph is cut at its quantized tensors: what is handed over is int8, with the scale that the whole graph
has there, and requantizing is no step of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ipj_edge.plugins import needs
from ipj_edge.protocols import Array, StageCut
from ipj_edge.values import Port, Quantization, TensorSpec
from ipj_edge_converters.onnx.files import load_onnx, save_onnx
from ipj_edge_converters.onnx.macs import node_macs
from ipj_edge_converters.onnx.observed import Observation, Observed, observe
from ipj_edge_converters.onnx.operators import count_operators
from ipj_edge_converters.onnx.stage import reads_of, stage_model, without_functions
from ipj_edge_converters.onnx.weights import count_weights
from ipj_edge_converters.staging.exits import check_classes, check_exits
from ipj_edge_converters.staging.graph import Operator, StageGraph, StagePlan, Tensor
from ipj_edge_converters.staging.plan import plan_stages

# They convert, clip, slice or pad values row by row; see `Operator.repeatable`.
_REPEATABLE = frozenset(
    (
        *("Cast", "Clip", "Concat", "DequantizeLinear", "Expand", "Flatten", "Identity", "Pad", "QuantizeLinear"),
        *("Relu", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Unsqueeze"),
    )
)


def cut_onnx(path: Path, exits: Sequence[str], inputs: Sequence[TensorSpec], into: Path) -> tuple[StageCut, ...]:
    """Write ``stage1.onnx``, ``stage2.onnx``, … and return what each takes and adds. The whole file stays as it is.

    Args:
        path: The whole model.
        exits: Its outputs, all of them exits, in any order; stages come sorted by depth.
        inputs: Its inputs as the source describes them.
        into: Folder to write to.

    Raises:
        ConfigError: fewer than two exits, an unknown one, an output that is none, or exits of different shapes.
        UnsupportedError: a stage would need a tensor without the batch axis; names it.
        ConversionError: onnxruntime cannot run the model.
    """
    model = without_functions(load_onnx(path))
    check_exits(exits, [value.name for value in model.graph.output])
    seen = observe(model, inputs)
    check_classes({name: seen.tensors[name].shape for name in exits})
    plans = plan_stages(_graph(model, seen), exits)
    return tuple(_written(model, seen, plan, number, into) for number, plan in enumerate(plans, 1))


def _graph(model: Any, seen: Observation) -> StageGraph:
    live = {value.name for value in model.graph.input} & set(seen.tensors)
    for node in model.graph.node:
        if any(name in live for name in reads_of(node)):
            live.update(name for name in node.output if name)
    weights = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    sizes = [{**weights, **run} for run in seen.runs]
    return StageGraph(
        operators=tuple(_operator(node, _macs(node, sizes, seen)) for node in model.graph.node),
        inputs=tuple(value.name for value in model.graph.input if value.name in seen.tensors),
        tensors={name: _tensor(seen.tensors[name]) for name in live},
    )


def _operator(node: Any, macs: int | None) -> Operator:
    standard = node.domain in ("", "ai.onnx")
    return Operator(
        name=f"{node.op_type} {node.name}".strip(),
        reads=reads_of(node),
        makes=tuple(name for name in node.output if name),
        macs=macs,
        repeatable=standard and node.op_type in _REPEATABLE,
        transposes=standard and node.op_type == "Transpose",
        quantizes=standard and node.op_type == "QuantizeLinear",
        reads_shape=standard and node.op_type == "Shape",
    )


def _macs(node: Any, sizes: list[dict[str, tuple[int, ...]]], seen: Observation) -> int | None:
    """Return a node's work for one sample: what one sample more adds, or a share of a fixed batch."""
    work = [node_macs(node, each) for each in sizes]
    if work[0] is None or work[-1] is None or seen.open_sizes:
        return None if work[0] != 0 else 0
    return work[-1] - work[0] if len(work) > 1 else work[0] // seen.samples


def _tensor(seen: Observed) -> Tensor:
    fixed = [isinstance(size, int) for axis, size in enumerate(seen.shape) if axis != seen.batch_axis]
    return Tensor(
        shape=seen.shape,
        batched=seen.batch_axis is not None,
        elements=seen.elements,
        bytes=seen.elements * np.dtype(seen.dtype).itemsize,
        shape_known=all(fixed),
    )


def _written(model: Any, seen: Observation, plan: StagePlan, number: int, into: Path) -> StageCut:
    name = f"stage{number}"
    stage = stage_model(model, plan, name, seen.tensors)
    save_onnx(stage, into / f"{name}.onnx")
    reason = plan.macs_reason
    if seen.open_sizes:
        reason = f"the work depends on the size {', '.join(seen.open_sizes)}"
    return StageCut(
        name=name,
        file=f"{name}.onnx",
        takes=tuple(_port(model, each, seen.tensors[each]) for each in plan.takes),
        adds=tuple(_port(model, each, seen.tensors[each]) for each in plan.adds),
        exit_output=plan.exit,
        macs=None if seen.open_sizes else plan.macs,
        macs_reason=reason,
        parameters=count_weights(stage),
        operators=count_operators(into / f"{name}.onnx"),
    )


def _port(model: Any, name: str, seen: Observed) -> Port:
    return Port(
        name=name, engine_name=name, shape=seen.shape, dtype=seen.dtype, quantization=_quantization(model, name)
    )


def _quantization(model: Any, name: str) -> Quantization | None:
    """Return the scale of a tensor that a QuantizeLinear with one constant scale makes."""
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear" and name in node.output:
            constants = [_constant(model, each) for each in node.input[1:]]
            if all(array is not None and array.size == 1 for array in constants):
                numbers = [array.reshape(-1)[0] for array in constants if array is not None]
                zero_point = int(numbers[1]) if len(numbers) > 1 else 0
                return Quantization(scale=float(numbers[0]), zero_point=zero_point)
    return None


def _constant(model: Any, name: str) -> Array | None:
    with needs("convert"):
        from onnx import numpy_helper
    held = [tensor for tensor in model.graph.initializer if tensor.name == name]
    for node in model.graph.node:
        if node.op_type == "Constant" and name in node.output and node.attribute[0].HasField("t"):
            held.append(node.attribute[0].t)
    return np.asarray(numpy_helper.to_array(held[0])) if held else None
