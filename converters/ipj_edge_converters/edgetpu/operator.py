"""An operator as the Edge TPU's limits look at it: sizes, numbers, constants and options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipj_edge_converters.tflite import file as tflite_file

Shape = tuple[int, ...]


class GraphOperator:
    """One operator of a graph.

    Attributes:
        type: Its name in the schema.
        version: Version the file asks for.
        options: Its options, or None.
        reads: Tensors it takes; None where an optional one is absent.
        makes: Tensors it makes.
    """

    def __init__(self, model: Any, graph: Any, operator: Any, type_: str) -> None:
        self.type = type_
        self.version = int(model.operatorCodes[operator.opcodeIndex].version)
        self.options = operator.builtinOptions
        indices = [] if operator.inputs is None else [int(index) for index in operator.inputs]
        self.reads = [graph.tensors[index] if index >= 0 else None for index in indices]
        self.makes = [graph.tensors[int(index)] for index in operator.outputs]
        self._model = model

    def option(self, name: str) -> Any:
        """Return an option, 0 where the operator has no options (the schema's default for all that are asked)."""
        return getattr(self.options, name, 0) if self.options is not None else 0

    def data(self) -> list[Any]:
        """Return what flows through: what it makes, and what it takes that is not in the file."""
        flowing = [tensor for tensor in self.reads if tensor is not None and not self.is_constant(tensor)]
        return [*flowing, *self.makes]

    def is_constant(self, tensor: Any) -> bool:
        """Say whether a tensor's values are in the file."""
        return tflite_file.is_constant(self._model, tensor)

    def values(self, position: int) -> tuple[int, ...] | None:
        """Return a constant integer input's values; None where it is absent or not constant."""
        tensor = self.reads[position] if position < len(self.reads) else None
        if tensor is None or not self.is_constant(tensor):
            return None
        import numpy as np

        data = bytes(self._model.buffers[tensor.buffer].data)
        return tuple(int(value) for value in np.frombuffer(data, dtype=tflite_file.dtype_of(tensor)))

    def axes(self, position: int) -> tuple[int, ...] | None:
        """Return a constant list of axes, counted from the front."""
        found, rank = self.values(position), len(tflite_file.shape_of(self.reads[0]))
        return None if found is None else tuple(axis % rank for axis in found)


def shapes(tensors: Sequence[Any]) -> list[Shape]:
    """Return the sizes of tensors."""
    return [tflite_file.shape_of(tensor) for tensor in tensors]
