"""How many rows the tables have that a torch program's integer inputs index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipj_edge.values import TensorSpec
from ipj_edge_converters.sources.described import with_table_ranges

# These hand on the values of their first argument; what they do to the shape does not matter to an index.
_SAME_VALUES = frozenset(
    (
        *("to", "_to_copy", "clone", "contiguous", "alias", "detach", "view", "reshape", "_unsafe_view", "flatten"),
        *("unsqueeze", "squeeze", "expand", "transpose", "permute", "t", "slice", "select", "repeat"),
    )
)


def with_tables(exported: Any, inputs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """Give integer inputs without a value range the rows of the smallest table that they index."""
    names = dict(zip(exported.graph_signature.user_inputs, (spec.name for spec in inputs), strict=False))
    origin = {node.name: names[node.name] for node in exported.graph.nodes if node.name in names}
    rows: dict[str, int] = {}
    for node in exported.graph.nodes:
        operator = _operator(node)
        if operator in _SAME_VALUES and (first := _origin(node.args[:1], origin)):
            origin[node.name] = first
        for table, axis, index in _look_ups(operator, node.args):
            name, size = _origin((index,), origin), _size(table, axis)
            if name is not None and size is not None:
                rows[name] = min(size, rows.get(name, size))
    return with_table_ranges(inputs, rows)


def _operator(node: Any) -> str:
    """Return ``embedding`` for ``aten.embedding.default``; empty for what is no operator of aten."""
    namespace, _, rest = str(node.target).partition(".")
    return rest.partition(".")[0] if node.op == "call_function" and namespace == "aten" else ""


def _look_ups(operator: str, args: Sequence[Any]) -> list[tuple[Any, int, Any]]:
    """Return (table, axis, index) of everything that an operator looks up."""
    if operator in ("embedding", "embedding_bag", "_embedding_bag"):
        return [(args[0], 0, args[1])]
    if operator in ("index_select", "gather"):
        return [(args[0], args[1], args[2])]
    if operator == "index":
        return [(args[0], axis, index) for axis, index in enumerate(args[1]) if index is not None]
    return []


def _origin(args: Sequence[Any], origin: dict[str, str]) -> str | None:
    return next((origin[arg.name] for arg in args if getattr(arg, "name", None) in origin), None)


def _size(table: Any, axis: int) -> int | None:
    shape = getattr(getattr(table, "meta", {}).get("val"), "shape", ())
    size = shape[axis] if -len(shape) <= axis < len(shape) else None
    return size if isinstance(size, int) else None
