"""A torch module as converters want it: inputs by position, a flat tuple of tensors out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ipj_edge.errors import SourceError
from ipj_edge.plugins import needs


def named_tensors(answer: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what a module returned as (name, tensor) pairs.

    Keys of dicts and fields of dataclasses are names, members of tuples and lists are numbered, None is left out.
    A tensor that nothing names has an empty name.

    Raises:
        SourceError: something is not a tensor.
    """
    with needs("convert"):
        import torch
    if isinstance(answer, torch.Tensor):
        yield name, answer
    elif answer is not None:
        for key, value in _members(answer, name):
            yield from named_tensors(value, f"{name}_{key}" if name else key)


def _members(answer: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(answer, Mapping):
        yield from ((str(key), value) for key, value in answer.items())
    elif fields := getattr(answer, "_fields", ()):  # a named tuple
        yield from zip(fields, answer, strict=True)
    elif isinstance(answer, Sequence) and not isinstance(answer, str):
        prefix = "" if name else "output_"
        yield from ((f"{prefix}{index}", value) for index, value in enumerate(answer))
    elif dataclasses.is_dataclass(answer):
        yield from ((field.name, getattr(answer, field.name)) for field in dataclasses.fields(answer))
    else:
        raise SourceError(
            f"the model returns a {type(answer).__name__}{f' as {name!r}' if name else ''}; expected tensors, "
            "or tuples, lists, dicts or dataclasses of tensors"
        )


def output_names(answer: Any, wanted: Sequence[str]) -> tuple[str, ...]:
    """Name the outputs of a module: as wanted, else after its keys, else ``output`` or ``output_0`` and on.

    Raises:
        SourceError: no tensor is returned, or the names wanted are too few, too many or not unique.
    """
    found = [name or "output" for name, _ in named_tensors(answer)]
    if not found:
        raise SourceError("the model returns no tensor")
    if found == ["output_0"]:
        found = ["output"]
    names = tuple(wanted) or tuple(found)
    if len(names) != len(found):
        raise SourceError(f"the model has {len(found)} outputs ({', '.join(found)}); {len(names)} names were given")
    if len(set(names)) != len(names):
        raise SourceError(f"the names of outputs must differ: {', '.join(names)}")
    return names


def by_position(module: Any, arrange: Callable[[tuple[Any, ...]], tuple[Any, Any]]) -> Any:
    """Wrap a module so that it takes its inputs by position and returns a flat tuple of tensors.

    Args:
        module: An ``nn.Module`` in evaluation mode.
        arrange: Turns the inputs into the positional and keyword arguments of the module.
    """
    with needs("convert"):
        import torch

    class ByPosition(torch.nn.Module):  # type: ignore[misc] # torch has no usable types here
        def __init__(self) -> None:
            super().__init__()
            self.model = module
            self.training = False  # not eval(), which the modules of exported programs refuse

        def forward(self, *inputs: Any) -> tuple[Any, ...]:
            answer = self.answer(*inputs)
            return tuple(tensor for _, tensor in named_tensors(answer))

        def answer(self, *inputs: Any) -> Any:
            """Return what the model itself returns, names and all."""
            args, kwargs = arrange(inputs)
            return self.model(*args, **kwargs)

    return ByPosition()
