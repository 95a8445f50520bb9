"""Inputs a user described, held against what a module's ``forward`` takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ipj_edge.errors import SourceError
from ipj_edge.protocols import SourceRequest
from ipj_edge.values import TensorSpec
from ipj_edge_converters.sources.described import check_has_inputs

_DTYPES = ("float32", "int64", "int32", "int16", "int8", "uint8", "bool")


Arrange = Callable[[tuple[Any, ...]], tuple[Any, Any]]


def arrangement(module: Any, request: SourceRequest) -> Arrange:
    """Say how a module gets its inputs: by name if ``forward`` has all the names, else by position.

    Raises:
        SourceError: no input is described, or they are too few or too many, or a size or dtype cannot be used.
    """
    signature = inspect.signature(module.forward)
    check_has_inputs(list(signature.parameters), request.location)
    if not request.inputs:
        raise SourceError(_undescribed(request.location, signature))
    for spec in request.inputs:
        _check_spec(spec)
    given = [spec.name for spec in request.inputs]
    if len(set(given)) != len(given):
        raise SourceError(f"inputs must have different names; got {', '.join(given)}")
    by_name = set(given) <= set(_named(signature))
    try:
        signature.bind(*(() if by_name else given), **(dict.fromkeys(given) if by_name else {}))
    except TypeError as error:
        raise SourceError(f"forward{_shown(signature)} does not take the inputs {', '.join(given)}: {error}") from error
    if by_name:
        return lambda inputs: ((), dict(zip(given, inputs, strict=True)))
    return lambda inputs: (inputs, {})


def _undescribed(location: str, signature: inspect.Signature) -> str:
    named = _named(signature)
    needed = [name for name in named if signature.parameters[name].default is inspect.Parameter.empty]
    options = " ".join(f"--input {name}:SHAPE" for name in needed or named[:1] or ["x"])
    return (
        f"'{location}' does not say what forward{_shown(signature)} takes: describe it with {options} "
        f"(--input name:shape[:dtype[:range]], e.g. --input {(needed or named or ['x'])[0]}:1x3x224x224)"
    )


def _named(signature: inspect.Signature) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [item.name for item in signature.parameters.values() if item.kind in kinds]


def _shown(signature: inspect.Signature) -> str:
    """Show a signature without annotations, which are long and say little of shapes."""
    marks: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    parts = [
        marks.get(item.kind, "") + item.name + ("" if item.default is inspect.Parameter.empty else f"={item.default!r}")
        for item in signature.parameters.values()
    ]
    return f"({', '.join(parts)})"


def _check_spec(spec: TensorSpec) -> None:
    if spec.dtype not in _DTYPES:
        raise SourceError(f"input '{spec.name}' is {spec.dtype}; a torch source takes {', '.join(_DTYPES)}")
    named = [size for size in spec.shape if isinstance(size, str)]
    if named:
        raise SourceError(
            f"input '{spec.name}' has the size '{named[0]}': give numbers (a dynamic batch is found by itself)"
        )
