"""Cut a backbone at named modules into stages that can run one after another.

Only the ``forward`` of the backbone and of the parents of the named modules is traced (torch.fx); every other module
stays as it is, whatever its code. Each stage holds only what its exit needs. What later stages need as well is handed
on; values that are no tensors (sizes, shapes) are worked out again where they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import fx, nn

from ipj_edge.errors import first_line
from ipj_edge_compress.errors import ModelError
from ipj_edge_compress.training.modes import evaluating


def cut(
    backbone: nn.Module, names: Sequence[str], example: Sequence[torch.Tensor]
) -> tuple[list[nn.Module], list[str]]:
    """Cut a backbone behind named modules.

    Args:
        backbone: The network; its modules are shared with the stages, not copied.
        names: Modules to cut behind, e.g. ``layer1`` or ``features.3``, in any order.
        example: Example inputs, in the order of ``forward``.

    Returns:
        The stages, one more than there are names, and the names sorted by depth. A stage takes what the stage before
        it returned; the first of that is the tensor behind the cut.

    Raises:
        ModelError: no such module, it is not on the way from input to output, or the backbone cannot be traced.
    """
    graph = _traced(backbone, names)
    tensors = _tensor_nodes(backbone, graph, example)
    cuts = _cut_nodes(graph, names)
    assigned = _assign(graph, cuts)
    wanted = _handed_on(graph, cuts, assigned, tensors)
    output = next(node for node in graph.nodes if node.op == "output")
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    ends: list[Any] = [*wanted, output.args[0]]
    starts = [inputs, *wanted]
    stages = [_stage(backbone, start, end) for start, end in zip(starts, ends, strict=True)]
    return stages, [str(node.target) for node in cuts]


class _Tracer(fx.Tracer):
    """Traces the parents of the named modules and leaves every other module whole."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self._parents = {".".join(name.split(".")[:depth]) for name in names for depth in range(name.count(".") + 1)}

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return module_qualified_name not in self._parents


def _traced(backbone: nn.Module, names: Sequence[str]) -> fx.Graph:
    known = [name for name, _ in backbone.named_modules() if name]
    for name in names:
        if name not in known:
            shown = ", ".join(known[:12]) + (" …" if len(known) > 12 else "")
            raise ModelError(f"the backbone has no module '{name}'; it has {shown}")
    try:
        return _Tracer(names).trace(backbone)
    except Exception as error:  # forward is the user's own
        raise ModelError(
            f"{type(backbone).__name__}.forward cannot be traced ({first_line(error)}): "
            "give stages and heads to MultiExit itself"
        ) from error


class _Recorder(fx.Interpreter):
    """Runs a graph and remembers which nodes hold tensors."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.tensors: set[str] = set()

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, torch.Tensor):
            self.tensors.add(n.name)
        return value


def _tensor_nodes(backbone: nn.Module, graph: fx.Graph, example: Sequence[torch.Tensor]) -> set[fx.Node]:
    """Return the nodes that hold tensors made from the inputs; weights and what follows from them alone are none."""
    recorder = _Recorder(fx.GraphModule(backbone, graph))
    recorder.extra_traceback = False  # it would put its own words before the message of an error
    try:
        with evaluating(backbone):
            recorder.run(*example)
    except Exception as error:  # the modules are the user's own
        raise ModelError(f"the backbone fails on the example: {first_line(error)}") from error
    from_inputs: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder" or from_inputs & set(node.all_input_nodes):
            from_inputs.add(node)
    return {node for node in from_inputs if node.name in recorder.tensors}


def _cut_nodes(graph: fx.Graph, names: Sequence[str]) -> list[fx.Node]:
    """Return the calls of the named modules, sorted by depth."""
    found = [node for node in graph.nodes if node.op == "call_module" and node.target in names]
    for name in names:
        calls = sum(node.target == name for node in found)
        if calls != 1:
            how = "is not called" if calls == 0 else f"is called {calls} times"
            raise ModelError(f"the module '{name}' {how} in forward; cut behind a module that is called once")
    ancestors = {node: _ancestors([node], set()) for node in found}
    ordered = sorted(found, key=lambda node: len(ancestors[node]))
    for shallow, deep in pairwise(ordered):
        if shallow not in ancestors[deep]:
            raise ModelError(f"'{deep.target}' does not depend on '{shallow.target}': exits must lie on one path")
    return ordered


def _ancestors(nodes: Sequence[fx.Node], known: set[fx.Node]) -> set[fx.Node]:
    """Return nodes and all they depend on, without what is known."""
    found: set[fx.Node] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in found and node not in known:
            found.add(node)
            waiting += node.all_input_nodes
    return found


def _assign(graph: fx.Graph, cuts: Sequence[fx.Node]) -> dict[fx.Node, int]:
    """Say which stage makes each node: the first whose exit needs it."""
    assigned: dict[fx.Node, int] = {node: -1 for node in graph.nodes if node.op == "placeholder"}
    output = next(node for node in graph.nodes if node.op == "output")
    for index, end in enumerate((*cuts, output)):
        assigned |= dict.fromkeys(_ancestors([end], set(assigned)), index)
    return assigned


def _handed_on(
    graph: fx.Graph, cuts: Sequence[fx.Node], assigned: dict[fx.Node, int], tensors: set[fx.Node]
) -> list[list[fx.Node]]:
    """Return for each cut the tensors that cross it: the exit's own first, then what later stages need."""
    wanted: list[list[fx.Node]] = []
    later: set[fx.Node] = set()
    for index in range(len(cuts), 0, -1):
        made = [node for node in graph.nodes if assigned.get(node) == index]
        later = {node for node in later if assigned[node] < index}
        for node in made:
            later |= {tensor for tensor in _needed_tensors(node, tensors) if assigned[tensor] < index}
        order = {node: place for place, node in enumerate(graph.nodes)}
        others = sorted(later - {cuts[index - 1]}, key=order.__getitem__)
        wanted.insert(0, [cuts[index - 1], *others])
    return wanted


def _needed_tensors(node: fx.Node, tensors: set[fx.Node]) -> set[fx.Node]:
    """Return the tensors a node needs, looking through sizes and shapes to the tensors they come from."""
    needed: set[fx.Node] = set()
    for source in node.all_input_nodes:
        if source not in tensors and source.op == "call_module":
            raise ModelError(f"'{source.target}' returns no single tensor, which cannot be handed on: cut elsewhere")
        needed |= {source} if source in tensors else _needed_tensors(source, tensors)
    return needed


def _stage(backbone: nn.Module, starts: Sequence[fx.Node], ends: Any) -> nn.Module:
    """Build the module that makes ``ends`` from ``starts``."""
    graph = fx.Graph()
    made = {node: graph.placeholder(f"x{index}") for index, node in enumerate(starts)}

    def value(node: fx.Node) -> fx.Node:
        if node not in made:
            for source in node.all_input_nodes:
                value(source)
            made[node] = graph.node_copy(node, made.__getitem__)
            made[node].type = None  # annotations may be strings, with which a graph cannot be pickled
        return made[node]

    _visit(ends, value)
    graph.output(fx.node.map_arg(tuple(ends) if isinstance(ends, list) else ends, made.__getitem__))
    stage = fx.GraphModule(backbone, graph, class_name="Stage")
    stage.training = backbone.training
    return stage


def _visit(ends: Any, value: Callable[[fx.Node], fx.Node]) -> None:
    fx.node.map_arg(tuple(ends) if isinstance(ends, list) else ends, value)
