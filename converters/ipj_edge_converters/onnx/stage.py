"""A stage of an ONNX graph as a model of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ipj_edge.plugins import needs
from ipj_edge_converters.onnx.observed import Observed
from ipj_edge_converters.staging.graph import StagePlan


def reads_of(node: Any) -> tuple[str, ...]:
    """Return the tensors of its own graph that a node reads, those its inner graphs capture included."""
    return tuple(dict.fromkeys((*(name for name in node.input if name), *_captured(node))))


def stage_model(model: Any, plan: StagePlan, name: str, tensors: Mapping[str, Observed]) -> Any:
    """Return the model of one stage: its nodes, the weights they use, its tensors as inputs and outputs.

    Args:
        model: The whole model, without local functions.
        plan: The stage; its operators are the nodes of the main graph.
        name: Name of the stage's graph.
        tensors: Facts of the model's tensors.
    """
    with needs("convert"):
        import onnx
    nodes = [each for index in plan.operators for each in _nodes(model.graph.node[index], plan, tensors)]
    used = {name for node in nodes for name in reads_of(node)} | set(plan.adds)
    graph = onnx.helper.make_graph(
        nodes,
        name,
        [_value(model, each, tensors) for each in plan.takes],
        [_value(model, each, tensors) for each in plan.adds],
        initializer=[tensor for tensor in model.graph.initializer if tensor.name in used],
        sparse_initializer=[each for each in model.graph.sparse_initializer if each.values.name in used],
    )
    stage = onnx.helper.make_model(graph, opset_imports=list(model.opset_import))
    stage.ir_version = model.ir_version
    return stage


def without_functions(model: Any) -> Any:
    """Return a model without functions of its own: what they do stands where they were called."""
    if not model.functions:
        return model
    with needs("convert"):
        from onnx import inliner
    return inliner.inline_local_functions(model)


def last_exit_only(model: Any, exit_name: str) -> Any:
    """Return the model that computes one of its outputs and nothing else: no head of another exit is left in it."""
    model = without_functions(model)
    makers = {name: index for index, node in enumerate(model.graph.node) for name in node.output if name}
    operators: set[int] = set()
    waiting = [exit_name]
    while waiting:
        index = makers.get(waiting.pop())
        if index is not None and index not in operators:
            operators.add(index)
            waiting.extend(reads_of(model.graph.node[index]))
    weights = {tensor.name for tensor in model.graph.initializer}
    plan = StagePlan(
        exit=exit_name,
        operators=tuple(sorted(operators)),
        takes=tuple(value.name for value in model.graph.input if value.name not in weights),
        adds=(exit_name,),
        shapes_of=(),
        macs=None,
    )
    return stage_model(model, plan, model.graph.name, {})


def _captured(node: Any) -> Iterator[str]:
    for attribute in node.attribute:
        for graph in (*attribute.graphs, *((attribute.g,) if attribute.HasField("g") else ())):
            own = {value.name for value in (*graph.input, *graph.initializer)}
            own |= {name for each in graph.node for name in each.output}
            read = {name for each in graph.node for name in reads_of(each)}
            yield from sorted((read | {value.name for value in graph.output}) - own)


def _value(model: Any, name: str, tensors: Mapping[str, Observed]) -> Any:
    """Describe an input or output of a stage: the model's own ones as they are, others as they were observed."""
    with needs("convert"):
        from onnx import helper
    for value in (*model.graph.input, *model.graph.output):
        if value.name == name:
            return value
    seen = tensors[name]
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(seen.dtype)), seen.shape)


def _nodes(node: Any, plan: StagePlan, tensors: Mapping[str, Observed]) -> list[Any]:
    """Return a node, or what stands for it: the shape of a tensor that is not taken follows from one that is."""
    if node.op_type != "Shape" or node.input[0] not in plan.shapes_of:
        return [node]
    anchor = next(name for name in plan.takes if tensors[name].batch_axis is not None)
    return _shape_from(anchor, tensors[anchor], node, tensors[node.input[0]])


def _shape_from(anchor: str, anchored: Observed, node: Any, seen: Observed) -> list[Any]:
    """Compute the shape of a tensor from the batch of another one, the anchor; all its other sizes are fixed."""
    with needs("convert"):
        from onnx import helper, numpy_helper
    output = node.output[0]
    attributes = {attribute.name: attribute.i for attribute in node.attribute}

    def constant(name: str, values: list[int]) -> Any:
        tensor = numpy_helper.from_array(np.asarray(values, np.int64), name)
        return helper.make_node("Constant", [], [name], value=tensor)

    axis, shape, batch = f"{output}/batch_axis", f"{output}/shape", f"{output}/batch"
    nodes = [
        constant(axis, [anchored.batch_axis or 0]),
        helper.make_node("Shape", [anchor], [shape]),
        helper.make_node("Gather", [shape, axis], [batch]),
    ]
    parts = []
    for place, size in list(enumerate(seen.shape))[attributes.get("start", 0) : attributes.get("end")]:
        if place == seen.batch_axis:
            parts.append(batch)
        else:
            parts.append(f"{output}/size_{place}")
            nodes.append(constant(parts[-1], [int(size)]))
    if not parts:
        return [constant(output, [])]
    return [*nodes, helper.make_node("Concat", parts, [output], axis=0)]
