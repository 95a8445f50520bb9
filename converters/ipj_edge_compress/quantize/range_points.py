"""Where int8 engines round activations: which nodes of a traced network get a range."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from ipj_edge_compress.quantize.fake import RangePoint

# Engines apply these within the operator before, and round only what comes out.
_FUSED = (nn.ReLU, nn.ReLU6, nn.Hardtanh)
_FUSED_FUNCTIONS = (torch.relu, functional.relu, functional.relu6, functional.hardtanh, torch.relu_)
_FUSED_METHODS = ("relu", "relu_")
_FUSES = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)
_FUSES_FUNCTIONS = (operator.add, operator.iadd, torch.add)

# These move values and make no new ones: what comes out is on the grid of what went in.
_MOVES = (nn.MaxPool1d, nn.MaxPool2d, nn.AdaptiveMaxPool2d, nn.Flatten, nn.Unflatten, nn.Identity, nn.ZeroPad2d)
_MOVES_FUNCTIONS = (
    *(operator.getitem, torch.flatten, torch.reshape, torch.permute, torch.transpose, torch.squeeze, torch.unsqueeze),
    *(torch.chunk, torch.split, functional.pad, functional.max_pool2d, functional.max_pool1d, functional.pixel_shuffle),
    *(torch.max_pool2d, torch.max_pool1d),
)
_MOVES_METHODS = (
    *("view", "reshape", "flatten", "permute", "transpose", "squeeze", "unsqueeze", "contiguous", "chunk", "split"),
    *("expand", "clone", "detach"),
)


def insert_points(traced: fx.GraphModule, floats: set[str], *, inputs: bool) -> list[str]:
    """Insert a `RangePoint` behind every node whose values an engine rounds; return the names of the points.

    Args:
        traced: A traced network; changed in place.
        floats: Names of nodes that hold floating-point tensors.
        inputs: Whether the inputs are to be rounded as well.
    """
    points = []
    for node in list(traced.graph.nodes):
        if node.name in floats and (_is_rounded(traced, node) or (inputs and node.op == "placeholder")):
            name = f"range_{node.name}"
            # What comes in is data, not a choice of the network: its range stays as it was seen.
            traced.add_submodule(name, RangePoint(trained=node.op != "placeholder"))
            with traced.graph.inserting_after(node):
                point = traced.graph.call_module(name, (node,))
            node.replace_all_uses_with(point, delete_user_cb=lambda user, point=point: user is not point)
            points.append(name)
    traced.recompile()
    return points


def remove_points(traced: fx.GraphModule) -> None:
    """Take the range points out again."""
    for node in list(traced.graph.nodes):
        if node.op == "call_module" and isinstance(traced.get_submodule(str(node.target)), RangePoint):
            node.replace_all_uses_with(node.args[0])
            traced.graph.erase_node(node)
    traced.delete_all_unused_submodules()
    traced.recompile()


def _is_rounded(traced: fx.GraphModule, node: fx.Node) -> bool:
    if node.op in ("placeholder", "get_attr", "output") or _moves(traced, node):
        return False
    users = list(node.users)
    fused = len(users) == 1 and _is_fused(traced, users[0]) and _fuses(traced, node)
    return not fused


def _moves(traced: fx.GraphModule, node: fx.Node) -> bool:
    return _is(traced, node, _MOVES, _MOVES_FUNCTIONS, _MOVES_METHODS)


def _is_fused(traced: fx.GraphModule, node: fx.Node) -> bool:
    return _is(traced, node, _FUSED, _FUSED_FUNCTIONS, _FUSED_METHODS)


def _fuses(traced: fx.GraphModule, node: fx.Node) -> bool:
    return _is(traced, node, _FUSES, _FUSES_FUNCTIONS, ())


def _is(
    traced: fx.GraphModule,
    node: fx.Node,
    modules: tuple[Any, ...],
    functions: tuple[Any, ...],
    methods: tuple[str, ...],
) -> bool:
    if node.op == "call_module":
        return isinstance(traced.get_submodule(str(node.target)), modules)
    if node.op == "call_function":
        return node.target in functions
    return node.op == "call_method" and node.target in methods


class FloatNodes(fx.Interpreter):
    """Runs a traced network and remembers which nodes hold floating-point tensors."""

    def __init__(self, traced: fx.GraphModule) -> None:
        super().__init__(traced)
        self.names: set[str] = set()

    def run_node(self, n: fx.Node) -> Any:
        """Run a node."""
        value = super().run_node(n)
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            self.names.add(n.name)
        return value
