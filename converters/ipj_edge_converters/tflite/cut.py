"""Cut a .tflite file with several exits, int8 or float, into one file per stage.

What is handed over is the tensor of the whole file, so an int8 file hands over int8 with the scale it has there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ipj_edge.errors import ConversionError, UnsupportedError
from ipj_edge.protocols import MacCount, StageCut
from ipj_edge.values import Port
from ipj_edge_converters.staging.exits import check_classes, check_exits
from ipj_edge_converters.staging.graph import Operator, StageGraph, StagePlan, Tensor
from ipj_edge_converters.staging.plan import plan_stages
from ipj_edge_converters.tflite import file as tflite_file
from ipj_edge_converters.tflite.counting import count_tflite
from ipj_edge_converters.tflite.macs import is_weight, operator_macs
from ipj_edge_converters.tflite.stage import stage_bytes

# They convert, clip, slice or pad values row by row; see `Operator.repeatable`.
_REPEATABLE = frozenset(
    (
        *("BROADCAST_TO", "CAST", "CONCATENATION", "DEQUANTIZE", "EXPAND_DIMS", "PAD", "PADV2", "QUANTIZE", "RELU"),
        *("RELU6", "RESHAPE", "SLICE", "SPLIT", "SPLIT_V", "SQUEEZE", "STRIDED_SLICE", "TILE"),
    )
)
# They keep something from one inference to the next.
_STATEFUL = frozenset(
    (
        *("ASSIGN_VARIABLE", "CALL_ONCE", "HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_SIZE"),
        *("READ_VARIABLE", "VAR_HANDLE"),
    )
)
# They run other graphs of the file.
_CALLS = frozenset(("CALL", "CALL_ONCE", "IF", "STABLEHLO_COMPOSITE", "WHILE"))


def cut_tflite(
    path: Path, exits: Sequence[str], takes: Sequence[Port], adds: Sequence[Port], batch: int, into: Path
) -> tuple[StageCut, ...]:
    """Write ``stage1.tflite``, ``stage2.tflite``, … and return what each takes and adds. The whole file stays as it is.

    Args:
        path: The whole file, with one signature.
        exits: Names of its outputs, all of them exits, in any order; stages come sorted by depth.
        takes: Its inputs: name of the model's input, and of the file's tensor.
        adds: Its outputs, likewise.
        batch: The batch size the file is made for.
        into: Folder to write to.

    Raises:
        ConfigError: fewer than two exits, an unknown one, an output that is none, or exits of different shapes.
        UnsupportedError: a stage would need a tensor without the batch axis, or the model keeps a state or has control
            flow; named.
        ConversionError: the file is damaged, or not the one the ports describe.
    """
    check_exits(exits, [port.name for port in adds])
    check_classes({port.name: port.shape for port in adds})
    whole = _Whole(tflite_file.inlined(path.read_bytes()), takes, adds, batch)
    plans = plan_stages(whole.graph(), exits)
    return tuple(_written(whole, plan, number, into) for number, plan in enumerate(plans, 1))


def last_exit_only(
    path: Path, exit_name: str, takes: Sequence[Port], adds: Sequence[Port], batch: int
) -> tuple[bytes, MacCount]:
    """Return the file that computes one of its outputs and nothing else, its work and its weights.

    No head of another exit is left in it.
    """
    whole = _Whole(tflite_file.inlined(path.read_bytes()), takes, adds, batch)
    graph = whole.graph()
    makers = {name: index for index, operator in enumerate(graph.operators) for name in operator.makes}
    operators: set[int] = set()
    waiting = [exit_name]
    while waiting:
        index = makers.get(waiting.pop())
        if index is not None and index not in operators:
            operators.add(index)
            waiting.extend(graph.operators[index].reads)
    inputs = {name: whole.places[name] for name in graph.inputs}
    data = stage_bytes(whole.data, sorted(operators), inputs, {exit_name: whole.places[exit_name]})
    counted = count_tflite(tflite_file.parse(data), batch)
    return data, msgspec.structs.replace(counted, parameters=whole.weights(sorted(operators)))


class _Whole:
    """The file to cut. Its inputs and outputs go by the model's names, all other tensors by the file's.

    Attributes:
        data: Its bytes.
        places: Index of every tensor of the main graph, by name.
    """

    def __init__(self, data: bytes, takes: Sequence[Port], adds: Sequence[Port], batch: int) -> None:
        self.data, self._batch = data, batch
        self._model = tflite_file.parse(data)
        self._names = tflite_file.operator_names(self._model)
        self._refuse_calls()
        (self._main,) = self._model.subgraphs
        own = {self._index(port, self._main.inputs): port.name for port in takes}
        self._inputs = tuple(own.values())
        own |= {self._index(port, self._main.outputs): port.name for port in adds}
        self._labels = self._unique_names(own)
        self.places = {name: index for index, name in enumerate(self._labels)}

    def graph(self) -> StageGraph:
        """Return the main graph for the planner."""
        self._refuse_states()
        live = {self.places[name] for name in self._inputs}
        for operator in self._main.operators:
            if any(int(index) in live for index in operator.inputs):
                live.update(int(index) for index in operator.outputs)
        return StageGraph(
            operators=tuple(self._operator(each) for each in self._main.operators),
            inputs=self._inputs,
            tensors={self._labels[index]: self._tensor(index) for index in live},
        )

    def weights(self, operators: Sequence[int]) -> int:
        """Return the number of weights these operators read, each once."""
        found: dict[int, int] = {}
        for operator in (self._main.operators[place] for place in operators):
            name = self._names[operator.opcodeIndex]
            for index in operator.inputs:
                if index >= 0 and self._is_constant(index) and is_weight(name, self._dtype(index)):
                    found[int(index)] = int(np.prod(self._shape(index))) if self._shape(index) else 0
        return sum(found.values())

    def _index(self, port: Port, among: Any) -> int:
        for index in among:
            if tflite_file.text(self._main.tensors[index].name) == port.engine_name:
                return int(index)
        raise ConversionError(f"the file to cut has no input or output {port.engine_name!r}: convert the model again")

    def _unique_names(self, own: dict[int, str]) -> list[str]:
        names: list[str] = []
        taken = set(own.values())
        for index, tensor in enumerate(self._main.tensors):
            name = tflite_file.text(tensor.name)
            if index not in own and (not name or name in taken):
                name = f"{name}#{index}"
            names.append(own.get(index, name))
            taken.add(names[-1])
        return names

    def _operator(self, operator: Any) -> Operator:
        name = self._names[operator.opcodeIndex]
        return Operator(
            name=f"{name} {self._labels[operator.outputs[0]]}",
            reads=tuple(self._labels[index] for index in operator.inputs if index >= 0),
            makes=tuple(self._labels[index] for index in operator.outputs),
            macs=self._macs(name, operator),
            repeatable=name in _REPEATABLE,
            transposes=name == "TRANSPOSE",
            quantizes=name == "QUANTIZE" and self._dtype(operator.inputs[0]).startswith("float"),
            reads_shape=name == "SHAPE",
        )

    def _macs(self, name: str, operator: Any) -> int | None:
        reads = [self._shape(index) if index >= 0 else () for index in operator.inputs]
        turned = name == "BATCH_MATMUL" and bool(operator.builtinOptions.adjX)
        work = operator_macs(name, reads, self._shape(operator.outputs[0]), left_transposed=turned)
        return None if work is None else work // self._batch

    def _tensor(self, index: int) -> Tensor:
        shape = self._shape(index)
        elements = int(np.prod(shape))
        return Tensor(
            shape=shape,
            batched=bool(shape) and shape[0] == self._batch,
            elements=elements,
            bytes=elements * np.dtype(self._dtype(index)).itemsize,
        )

    def _shape(self, index: int) -> tuple[int, ...]:
        shape = self._main.tensors[index].shape
        return () if shape is None else tuple(int(size) for size in shape)

    def _dtype(self, index: int) -> str:
        return tflite_file.dtype_of(self._main.tensors[index])

    def _is_constant(self, index: int) -> bool:
        data = self._model.buffers[self._main.tensors[index].buffer].data
        return data is not None and len(data) > 0

    def _refuse_calls(self) -> None:
        if len(self._model.subgraphs) > 1:
            found = sorted({name for name in self._names if name in _CALLS}) or ["several graphs"]
            raise UnsupportedError(
                f"a file in which operators run other graphs ({', '.join(found)}) cannot be cut: convert a model "
                "without control flow",
                tuple(found),
            )

    def _refuse_states(self) -> None:
        found = [
            self._names[operator.opcodeIndex]
            for operator in self._main.operators
            if self._names[operator.opcodeIndex] in _STATEFUL
            or any(index >= 0 and self._main.tensors[index].isVariable for index in operator.inputs)
        ]
        if found:
            raise UnsupportedError(
                f"a model that keeps a state cannot exit early ({found[0]}): a sample that leaves would not update it",
                (found[0],),
            )


def _written(whole: _Whole, plan: StagePlan, number: int, into: Path) -> StageCut:
    name = f"stage{number}"
    file = into / f"{name}.tflite"
    takes, adds = ({each: whole.places[each] for each in side} for side in (plan.takes, plan.adds))
    file.write_bytes(stage_bytes(whole.data, plan.operators, takes, adds))
    facts = tflite_file.read_facts(file.read_bytes())
    return StageCut(
        name=name,
        file=file.name,
        takes=ports_of(facts.inputs),
        adds=ports_of(facts.outputs),
        exit_output=plan.exit,
        macs=plan.macs,
        macs_reason=plan.macs_reason,
        parameters=whole.weights(plan.operators),
        operators=facts.operators,
    )


def ports_of(tensors: Sequence[tflite_file.TfliteTensor]) -> tuple[Port, ...]:
    """Return the ends of a cut file as ports, named as the signature names them."""
    return tuple(
        Port(
            name=tensor.argument,
            engine_name=tensor.name,
            shape=tensor.shape,
            dtype=tensor.dtype,
            quantization=tensor.quantization,
        )
        for tensor in tensors
    )
