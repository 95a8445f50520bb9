"""Export a torch module once, with a dynamic batch where the model can have one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from ipj_edge.errors import SourceError, typed_line
from ipj_edge.plugins import needs
from ipj_edge.protocols import Array
from ipj_edge.values import TensorSpec
from ipj_edge_converters.quiet import quiet
from ipj_edge_converters.sources.feeds import example_arrays

# What torch.export and a model's own forward raise on shapes they cannot follow; torch's own classes
# (UserError, ConstraintViolationError, GuardOnDataDependentSymNode) derive from these.
EXPORT_FAILURES = (RuntimeError, ValueError, TypeError, AssertionError, LookupError, AttributeError)

# A batch of 2 or more, since torch.export specialises on sizes 0 and 1.
_DYNAMIC_EXAMPLE = 2
_PROBED = (1, 3)


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """An exported module.

    Attributes:
        exported: The ``torch.export.ExportedProgram``.
        dynamic: Whether its batch axis is dynamic.
        reason: Why it is not; empty when it is.
    """

    exported: Any
    dynamic: bool
    reason: str = ""


class _NotDynamicError(Exception):
    """The program exported with a dynamic batch is not the model at every batch size."""


def export_program(module: Any, inputs: Sequence[TensorSpec], max_batch: int) -> Program:
    """Export a module, with a dynamic batch of 1..max_batch where that gives the model's own answers.

    Args:
        module: A module that takes its inputs by position and returns a tuple of tensors.
        inputs: Its inputs, all sizes numbers.
        max_batch: Largest batch the program has to take.

    Raises:
        SourceError: torch cannot export the module even for one fixed batch.
    """
    if max_batch < _DYNAMIC_EXAMPLE:
        reason = "a largest batch of 1 was asked for"
    elif all(spec.batch_axis is None for spec in inputs):
        reason = "no input has a batch axis"
    else:
        try:
            return Program(exported=_export_dynamic(module, inputs, max_batch), dynamic=True)
        except (_NotDynamicError, *EXPORT_FAILURES) as error:
            reason = str(error) if isinstance(error, _NotDynamicError) else typed_line(error)
    try:
        return Program(exported=_export(module, example_arrays(inputs, None), None), dynamic=False, reason=reason)
    except EXPORT_FAILURES as error:
        raise SourceError(f"torch.export cannot follow this model: {typed_line(error)}") from error


def _export_dynamic(module: Any, inputs: Sequence[TensorSpec], max_batch: int) -> Any:
    with needs("convert"):
        import torch
    batch = torch.export.Dim("batch", min=1, max=max_batch)
    shapes = tuple({} if spec.batch_axis is None else {spec.batch_axis: batch} for spec in inputs)
    exported = _export(module, example_arrays(inputs, _DYNAMIC_EXAMPLE), (shapes,))
    for size in _PROBED:
        if size <= max_batch:
            _compare(module, exported, example_arrays(inputs, size), size)
    return exported


def _export(module: Any, arrays: Sequence[Array], dynamic_shapes: Any) -> Any:
    with needs("convert"):
        import torch
    with quiet("torch.export", "torch.fx"), torch.no_grad():
        return torch.export.export(module, as_tensors(arrays), dynamic_shapes=dynamic_shapes)


def with_open_sizes(exported: Any, outputs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """Leave open the sizes of outputs that hang on values: how many places are not zero, for example."""
    with needs("convert"):
        from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
    node = next(node for node in exported.graph.nodes if node.op == "output")
    wanted = set(exported.graph_signature.user_outputs)
    values = [arg.meta.get("val") for arg in node.args[0] if hasattr(arg, "meta") and arg.name in wanted]
    if len(values) != len(outputs):
        return tuple(outputs)
    return tuple(
        msgspec.structs.replace(
            spec,
            shape=tuple(
                f"{spec.name}_dim{axis}" if free_unbacked_symbols(value.shape[axis]) else size
                for axis, size in enumerate(spec.shape)
            ),
        )
        for spec, value in zip(outputs, values, strict=True)
    )


def as_tensors(arrays: Sequence[Array]) -> tuple[Any, ...]:
    """Return arrays as torch tensors of their own (torch warns about sharing memory that may not be written)."""
    with needs("convert"):
        import torch
    return tuple(torch.from_numpy(np.array(array, order="C")) for array in arrays)


def _compare(module: Any, exported: Any, arrays: Sequence[Array], batch: int) -> None:
    """Run model and program: a branch on the batch size is silently frozen by the export."""
    with needs("convert"):
        import torch
    tensors = as_tensors(arrays)
    with quiet("torch.export", "torch.fx"), torch.no_grad():
        want, got = module(*tensors), exported.module()(*tensors)
    for expected, found in zip(want, got, strict=True):
        if expected.shape != found.shape or not torch.allclose(
            expected.double(), found.double(), rtol=1e-3, atol=1e-4, equal_nan=True
        ):
            raise _NotDynamicError(f"the model computes differently at batch {batch} than at {_DYNAMIC_EXAMPLE}")
