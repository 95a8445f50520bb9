"""Batch normalisation folded into the layer before it, dropout removed: the network as a device runs it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from ipj_edge.errors import first_line
from ipj_edge_compress.errors import ModelError

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)


def folded(module: nn.Module, name: str = "") -> fx.GraphModule:
    """Return a traced copy of a module in evaluation mode, batch normalisation folded where that is exact.

    Args:
        module: Any module that torch.fx can trace.
        name: What to call it in errors.

    Raises:
        ModelError: it cannot be traced; says which module.
    """
    copy = deepcopy(module).eval()
    try:
        traced = fx.GraphModule(copy, fx.Tracer().trace(copy), class_name=type(module).__name__)
    except Exception as error:  # forward is the user's own
        raise ModelError(f"'{name or type(module).__name__}' cannot be traced: {first_line(error)}") from error
    for node in list(traced.graph.nodes):
        node.type = None  # annotations may be strings, with which a graph cannot be pickled
        if node.op == "call_module":
            _simplify(traced, node)
    traced.graph.lint()
    traced.delete_all_unused_submodules()
    traced.recompile()
    return traced


def _simplify(traced: fx.GraphModule, node: fx.Node) -> None:
    layer = traced.get_submodule(str(node.target))
    if isinstance(layer, _DROPOUTS):
        _bypass(traced, node)
    elif isinstance(layer, _NORMS) and _single_source(traced, node) is not None:
        before = node.args[0]
        traced.set_submodule(str(before.target), _fused(traced.get_submodule(str(before.target)), layer))
        _bypass(traced, node)


def _single_source(traced: fx.GraphModule, node: fx.Node) -> nn.Module | None:
    """Return the layer before a normalisation if it can take it in: nothing else reads it, and it is called once."""
    before: Any = node.args[0]
    if before.op != "call_module" or len(before.users) > 1:
        return None
    if sum(other.op == "call_module" and other.target == before.target for other in traced.graph.nodes) > 1:
        return None
    layer = traced.get_submodule(str(before.target))
    return layer if isinstance(layer, (*_CONVOLUTIONS, nn.Linear)) else None


def _fused(layer: nn.Module, norm: nn.Module) -> nn.Module:
    fuse = fuse_linear_bn_eval if isinstance(layer, nn.Linear) else fuse_conv_bn_eval
    return fuse(layer.eval(), norm.eval())


def _bypass(traced: fx.GraphModule, node: fx.Node) -> None:
    node.replace_all_uses_with(node.args[0])
    traced.graph.erase_node(node)
