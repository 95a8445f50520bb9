"""Multiply-accumulates of one ONNX node, from the sizes of its tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any

Sizes = Mapping[str, tuple[int, ...]]

# These multiply and have no rule here; onnxruntime's own operators are not looked into either.
_NO_RULE = frozenset(("Attention", "DeformConv", "LinearAttention", "CausalConvWithState"))


def node_macs(node: Any, sizes: Sizes) -> int | None:
    """Return the multiply-accumulates of a node; None when it multiplies and there is no rule for it.

    Args:
        node: A node of the main graph.
        sizes: Shapes of the tensors it reads and makes.
    """
    rule = _RULES.get(node.op_type)
    if rule is not None and node.domain in ("", "ai.onnx"):
        return rule(node, sizes)
    inner = any(_multiplies(each) for each in _inner_nodes(node))
    return None if inner or _multiplies(node) else 0


def _multiplies(node: Any) -> bool:
    return node.op_type in _RULES or node.op_type in _NO_RULE or node.domain == "com.microsoft"


def _inner_nodes(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        for graph in (*attribute.graphs, *((attribute.g,) if attribute.HasField("g") else ())):
            for each in graph.node:
                yield each
                yield from _inner_nodes(each)


def _convolution(weight: int) -> Callable[[Any, Sizes], int]:
    """Outputs × weights that meet in one output; the weights are (out, in/groups, kernel…)."""
    return lambda node, sizes: prod(sizes[node.output[0]]) * prod(sizes[node.input[weight]][1:])


def _transposed(node: Any, sizes: Sizes) -> int:
    """Inputs × weights that one input meets; the weights are (in, out/groups, kernel…)."""
    return prod(sizes[node.input[0]]) * prod(sizes[node.input[1]][1:])


def _matmul(node: Any, sizes: Sizes) -> int:
    """Outputs × length of the inner axis, the last of the left operand."""
    return prod(sizes[node.output[0]]) * sizes[node.input[0]][-1]


def _gemm(node: Any, sizes: Sizes) -> int:
    turned = any(attribute.name == "transA" and attribute.i for attribute in node.attribute)
    return prod(sizes[node.output[0]]) * sizes[node.input[0]][0 if turned else 1]


def _recurrent(node: Any, sizes: Sizes) -> int:
    """Steps × batch × (input weights + recurrent weights), all gates and directions; X is (steps, batch, in)."""
    return prod(sizes[node.input[0]][:2]) * (prod(sizes[node.input[1]]) + prod(sizes[node.input[2]]))


def _einsum(node: Any, sizes: Sizes) -> int | None:
    """Product of the sizes of all letters, for two operands written out in letters."""
    equation = next(attribute.s.decode() for attribute in node.attribute if attribute.name == "equation")
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    if len(terms) != 2 or "." in equation:
        return None
    letters = {
        letter: size
        for term, name in zip(terms, node.input, strict=True)
        for letter, size in zip(term, sizes[name], strict=True)
    }
    return prod(letters.values())


_RULES: dict[str, Callable[[Any, Sizes], int | None]] = {
    "Conv": _convolution(1),
    "ConvInteger": _convolution(1),
    "QLinearConv": _convolution(3),
    "ConvTranspose": _transposed,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "MatMulInteger": _matmul,
    "QLinearMatMul": _matmul,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
    "Einsum": _einsum,
}
