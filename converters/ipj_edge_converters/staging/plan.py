"""Where to cut a multi-exit graph: which operators each stage runs, what it takes and what it adds.

A stage runs what its exit needs and no earlier stage ran: its part of the trunk, and its head. What it reads of
earlier stages lives in a pool of tensors, so a long skip passes by the stages between. A tensor without the batch
axis cannot be in the pool, since rows that are finished could not leave it: such tensors are recomputed from shapes
where that is what they are made of, and refused otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ipj_edge.errors import ConfigError, UnsupportedError
from ipj_edge_converters.staging.graph import Operator, StageGraph, StagePlan


def plan_stages(graph: StageGraph, exits: Sequence[str]) -> tuple[StagePlan, ...]:
    """Cut a graph at its exits.

    Args:
        graph: The graph.
        exits: Tensors that are exits, in any order; the stages come sorted by depth, which is the number of
            multiply-accumulates an exit needs (where they are equal: the order of the graph).

    Raises:
        ConfigError: an exit does not depend on the inputs.
        UnsupportedError: a stage would need a tensor without the batch axis; names it.
    """
    _check_computed(graph, exits)
    return _Planner(graph, exits).plans()


def _check_computed(graph: StageGraph, exits: Sequence[str]) -> None:
    for name in exits:
        if name not in graph.tensors or name in graph.inputs:
            raise ConfigError(f"the exit {name!r} is not computed from the model's inputs")


class _Planner:
    def __init__(self, graph: StageGraph, exits: Sequence[str]) -> None:
        self._graph = graph
        self._maker = {name: index for index, each in enumerate(graph.operators) for name in each.makes}
        self._exits = sorted(exits, key=self._depth)
        self._from_shapes = self._made_from_shapes()
        self._own = self._split()

    def plans(self) -> tuple[StagePlan, ...]:
        needs = [self._needs(stage) for stage in range(len(self._exits))]
        taken = {name for each in needs for name in each.takes}
        return tuple(self._plan(stage, each, taken) for stage, each in enumerate(needs))

    def _depth(self, name: str) -> tuple[int, int, int]:
        """Order exits: operators whose work is not known (they are trunk, hardly ever head), then known work."""
        work = [self._graph.operators[index].macs for index in self._ancestors(name)]
        known = sum(macs for macs in work if macs is not None)
        return sum(macs is None for macs in work), known, self._maker[name]

    def _ancestors(self, name: str) -> set[int]:
        found: set[int] = set()
        waiting = [name]
        while waiting:
            index = self._maker.get(waiting.pop())
            if index is not None and index not in found:
                found.add(index)
                waiting.extend(self._graph.operators[index].reads)
        return found

    def _is_live(self, operator: Operator) -> bool:
        """Say whether an operator depends on the inputs; the others are constant, and repeated wherever needed."""
        return any(name in self._graph.tensors for name in operator.makes)

    def _live(self, names: Iterable[str]) -> Iterator[str]:
        return (name for name in dict.fromkeys(names) if name in self._graph.tensors)

    def _made_from_shapes(self) -> set[str]:
        """Return the tensors that depend on the shapes of the inputs and on none of their values."""
        found: set[str] = set()
        for operator in self._graph.operators:
            if operator.reads_shape or all(name in found for name in self._live(operator.reads)):
                found.update(self._live(operator.makes))
        return found

    def _split(self) -> list[set[int]]:
        """Return the operators each stage runs first; a quantizer goes back to the stage that makes what it reads."""
        done: set[int] = set()
        own: list[set[int]] = []
        for name in self._exits:
            live = {index for index in self._ancestors(name) if self._is_live(self._graph.operators[index])}
            own.append(live - done)
            done |= live
        for stage, indices in enumerate(own):
            for index in sorted(indices):
                earlier = self._quantized_before(index, own[:stage])
                if earlier is not None:
                    indices.remove(index)
                    own[earlier].add(index)
        return own

    def _quantized_before(self, index: int, before: list[set[int]]) -> int | None:
        """Return the earlier stage whose result this operator, as its only later reader, quantizes."""
        operator = self._graph.operators[index]
        if not operator.quantizes:
            return None
        (source,) = self._live(operator.reads)
        run = set().union(*before)
        later = [i for i, each in enumerate(self._graph.operators) if source in each.reads and i not in run]
        return self._stage_of(source, before) if later == [index] else None

    def _stage_of(self, name: str, own: list[set[int]]) -> int | None:
        index = self._maker.get(name)
        return next((stage for stage, indices in enumerate(own) if index in indices), None)

    def _needs(self, stage: int) -> _Needs:
        """Return what a stage takes from the pool and which operators of earlier stages it repeats."""
        needs = _Needs(self._own[stage], self._graph)
        waiting = [name for index in sorted(self._own[stage]) for name in self._wanted(index)]
        while waiting:
            name = waiting.pop()
            if needs.has(name):
                continue
            if name in self._graph.inputs or not self._is_repeated(name, stage):
                needs.take(name)
            else:
                needs.repeat(self._maker[name])
                waiting.extend(self._wanted(self._maker[name]))
        self._repeat_where_free(needs)
        return needs

    def _wanted(self, index: int) -> Iterator[str]:
        """Yield what an operator reads of values; a known shape follows from any other tensor's batch."""
        operator = self._graph.operators[index]
        for name in self._live(operator.reads):
            if not (operator.reads_shape and self._graph.tensors[name].shape_known):
                yield name

    def _is_repeated(self, name: str, stage: int) -> bool:
        if name in self._from_shapes:
            return True
        if self._graph.tensors[name].batched:
            return self._has_smaller_source(name)
        if self._only_rearranges(name):
            return True
        operator = self._graph.operators[self._maker[name]]
        shape = list(self._graph.tensors[name].shape)
        raise UnsupportedError(
            f"the stage of exit {self._exits[stage]!r} would take the tensor {name!r} of shape {shape} from an earlier "
            f"stage, but it has no batch axis, so finished samples could not leave it (operator {operator.name!r} "
            "makes it): move the exit, or change the model so that this tensor has one row for each sample"
        )

    def _only_rearranges(self, name: str) -> bool:
        """Say whether a tensor holds every value of one other, as a reshape does that merges batch and heads."""
        operator = self._graph.operators[self._maker[name]]
        sources = list(self._live(operator.reads))
        tensors = self._graph.tensors
        if not (operator.repeatable or operator.transposes) or len(sources) != 1:
            return False
        return tensors[sources[0]].elements == tensors[name].elements

    def _has_smaller_source(self, name: str) -> bool:
        """Say whether repeating one operator after another, upwards from a tensor, leads to a smaller one."""
        size = self._graph.tensors[name].bytes
        while (index := self._maker.get(name)) is not None and self._graph.operators[index].repeatable:
            sources = list(self._live(self._graph.operators[index].reads))
            if len(sources) != 1:
                return False
            (name,) = sources
            if self._graph.tensors[name].batched and self._graph.tensors[name].bytes < size:
                return True
        return False

    def _repeat_where_free(self, needs: _Needs) -> None:
        """Take no tensor that a repeatable operator makes of others which are taken anyway."""
        for name in sorted(needs.takes, key=lambda each: -self._maker.get(each, -1)):
            index = self._maker.get(name)
            if index is None or not self._graph.operators[index].repeatable:
                continue
            if all(needs.has(each) for each in self._wanted(index)):
                needs.takes.remove(name)
                needs.repeat(index)

    def _plan(self, stage: int, needs: _Needs, taken: set[str]) -> StagePlan:
        name = self._exits[stage]
        made = {each for index in self._own[stage] for each in self._graph.operators[index].makes}
        live = needs.operators
        adds = [each for each in self._in_order(made & taken) if each != name]
        shapes = {
            each
            for index in live
            if self._graph.operators[index].reads_shape
            for each in self._live(self._graph.operators[index].reads)
            if not needs.has(each)
        }
        macs, reason = self._work(live)
        return StagePlan(
            exit=name,
            operators=tuple(sorted(live | self._constant_operators(live))),
            takes=tuple(self._in_order(needs.takes)),
            adds=(name, *adds),
            shapes_of=tuple(self._in_order(shapes)),
            macs=macs,
            macs_reason=reason,
        )

    def _in_order(self, names: Iterable[str]) -> list[str]:
        inputs = {name: place - len(self._graph.inputs) for place, name in enumerate(self._graph.inputs)}
        return sorted(names, key=lambda name: (inputs.get(name, self._maker.get(name, 0)), name))

    def _constant_operators(self, live: set[int]) -> set[int]:
        """Return the operators that make the constants these operators read."""
        read = (name for index in live for name in self._graph.operators[index].reads)
        found: set[int] = set()
        for name in read:
            if name not in self._graph.tensors:
                found |= self._ancestors(name)
        return found

    def _work(self, live: set[int]) -> tuple[int | None, str]:
        unknown = sorted({self._graph.operators[i].name for i in live if self._graph.operators[i].macs is None})
        if unknown:
            return None, f"no rule for the operator {', '.join(unknown[:3])}"
        return sum(self._graph.operators[index].macs or 0 for index in live), ""


class _Needs:
    """What one stage takes and runs, as far as it is worked out."""

    def __init__(self, own: set[int], graph: StageGraph) -> None:
        self._graph = graph
        self.operators = set(own)
        self.takes: set[str] = set()
        self._made = {name for index in own for name in graph.operators[index].makes}

    def has(self, name: str) -> bool:
        return name in self.takes or name in self._made

    def take(self, name: str) -> None:
        self.takes.add(name)

    def repeat(self, index: int) -> None:
        self.operators.add(index)
        self._made.update(self._graph.operators[index].makes)
