"""Inputs of an exported torch program as specs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipj_edge.errors import SourceError, UnsupportedError
from ipj_edge.plugins import needs
from ipj_edge.values import TensorSpec

_QUANTIZED = ("quantized_decomposed", "torchao", "quantized")


def check_program(exported: Any) -> None:
    """Refuse programs that no converter here can take.

    Raises:
        UnsupportedError: the program is already quantized.
        SourceError: it computes in half precision.
    """
    with needs("convert"):
        import torch
    spaces = {str(node.target).partition(".")[0] for node in exported.graph.nodes if node.op == "call_function"}
    if found := sorted(spaces & set(_QUANTIZED)):
        raise UnsupportedError(
            f"the program is already quantized (operators of {', '.join(found)}): convert the float model, "
            "or a QDQ ONNX file made from it"
        )
    half = (torch.float16, torch.bfloat16)
    if any(getattr(tensor, "dtype", None) in half for tensor in exported.state_dict.values()):
        raise SourceError("the program computes in half precision: export the model in float32")


def program_inputs(exported: Any) -> tuple[TensorSpec, ...]:
    """Describe the inputs of a program; the dynamic size on axis 0 of the first input that has one is the batch.

    Raises:
        SourceError: an input is not a tensor.
    """
    values = _values(exported)
    first_sizes = [str(value.shape[0]) for value in values.values() if value.ndim and not _is_number(value.shape[0])]
    symbol = first_sizes[0] if first_sizes else None
    return tuple(_spec(name, value, symbol, _static_batch(values)) for name, value in values.items())


def check_batch_range(exported: Any, max_batch: int) -> int:
    """Return the largest batch to run a program with: what it was exported for, and not more than is needed.

    Raises:
        SourceError: the program does not take a single sample.
    """
    values = _values(exported)
    size = next(value.shape[0] for value in values.values() if value.ndim and not _is_number(value.shape[0]))
    limits = exported.range_constraints.get(size.node.expr)
    if limits is None:
        return max_batch
    if int(limits.lower) > 1:
        raise SourceError(f"the program takes no batch below {int(limits.lower)}: export it with Dim('batch', min=1)")
    return max_batch if limits.upper.is_infinite else min(max_batch, int(limits.upper))


def arrangement(exported: Any) -> Callable[[tuple[Any, ...]], tuple[Any, Any]]:
    """Say how a program gets its inputs: as it was exported, by position, by keyword or nested."""
    with needs("convert"):
        from torch.utils._pytree import tree_unflatten
    structure = exported.call_spec.in_spec

    def arrange(inputs: tuple[Any, ...]) -> tuple[Any, Any]:
        args, kwargs = tree_unflatten(list(inputs), structure)
        return args, kwargs

    return arrange


def _values(exported: Any) -> dict[str, Any]:
    """Return the program's inputs as the fake tensors it was traced with, by name."""
    with needs("convert"):
        import torch
    wanted = exported.graph_signature.user_inputs
    values = {node.name: node.meta.get("val") for node in exported.graph.nodes if node.op == "placeholder"}
    for name in wanted:
        if not isinstance(values.get(name), torch.Tensor):
            raise SourceError(f"the program's input '{name}' is not a tensor: export it with that value fixed")
    return {name: values[name] for name in wanted}


def _spec(name: str, value: Any, symbol: str | None, static: int | None) -> TensorSpec:
    shape = tuple(
        int(size) if _is_number(size) else "batch" if str(size) == symbol else f"{name}_dim{axis}"
        for axis, size in enumerate(value.shape)
    )
    if symbol is not None:
        axis = shape.index("batch") if "batch" in shape else None
    else:
        axis = 0 if shape and shape[0] == static else None
    return TensorSpec(name=name, shape=shape, dtype=str(value.dtype).removeprefix("torch."), batch_axis=axis)


def _static_batch(values: dict[str, Any]) -> int | None:
    return next((int(value.shape[0]) for value in values.values() if value.ndim and _is_number(value.shape[0])), None)


def _is_number(size: Any) -> bool:
    return isinstance(size, int)
