"""Stages run one after the other: after each, the finished samples leave and the rest go on.

Tensors live in a pool by name, in the engine's own dtypes, so an int8 boundary is handed over as int8. Samples that
leave are taken out of every tensor of the pool that a later stage still needs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from time import perf_counter
from typing import NamedTuple

import numpy as np

from ipj_edge.errors import ConfigError, TargetError
from ipj_edge.exits import ExitShares, answering_exits
from ipj_edge.protocols import Adopting, Array, Session
from ipj_edge.runtime.adaptation import OutputAdapter, output_adapter
from ipj_edge.runtime.programs import Programs
from ipj_edge.values import TensorSpec

_log = logging.getLogger(__name__)

# Runs of one sample after which a session returns its outputs in the same memory every time.
_SETTLED = 3


class Answered(NamedTuple):
    """Real values of shape (n, …) and the exit each is from, integers of shape (n,)."""

    answer: Array
    exit_indices: Array


class _Stage(NamedTuple):
    """What running a stage takes: its session, its exit, and what later stages take from the pool."""

    session: Session
    exit: str
    adapt: OutputAdapter
    alive: tuple[str, ...]


class Chain:
    """The stages of one model, a gate between them.

    Attributes:
        answer_name: Name that answers are given under: that of the last exit.
        counts: Samples answered by each exit so far.
    """

    def __init__(self, programs: Programs, batched_inputs: frozenset[str], outputs: Mapping[str, TensorSpec]) -> None:
        sessions = programs.stages
        self._gate = programs.gate
        self._stages = tuple(_stage(sessions, index, batched_inputs, outputs) for index in range(len(sessions)))
        self._last = len(sessions) - 1
        self._inputs = {port.name for port in sessions[0].stage.takes} | batched_inputs
        self._adopt_at = [_SETTLED] * len(sessions)
        self.answer_name = self._stages[-1].exit
        self.counts = [0] * len(sessions)
        record = programs.record
        self._times = None if record is None else record.times
        certified = record is not None and record.certificate.holds
        self._shares = ExitShares(record.certificate.leavers) if certified and record is not None else None
        self._recall = self._gate is not None and self._gate.policy.recall

    def run(self, feeds: dict[str, Array], rows: int, max_exit: int | None, until: float | None) -> Answered:
        """Run samples until each has an answer.

        Args:
            feeds: Engine tensors of the inputs.
            rows: Number of samples.
            max_exit: Deepest exit to run to.
            until: Time of `time.perf_counter` by which to answer.

        Raises:
            ConfigError: no such exit, or a deadline without known stage times.
            TargetError: the last exit answered with NaN for a sample (named).
        """
        deepest = self._deepest(max_exit)
        if until is not None and self._times is None:
            raise ConfigError("a deadline needs the times of the stages: run `ipj-edge exits tune` on this device")
        if rows == 1 and not self._recall:
            answered = self._run_row(dict(feeds), deepest, until)
        else:
            answered = self._run_rows(dict(feeds), rows, deepest, until)
        self._count(answered.exit_indices, free=max_exit is None and until is None)
        return answered

    def every(self, feeds: dict[str, Array]) -> dict[str, Array]:
        """Return the real outputs of every exit by name, for as many samples as the engine takes at once."""
        pool, found = dict(feeds), {}
        for stage in self._stages:
            pool.update(stage.session.run(pool))
            found[stage.exit] = stage.adapt(pool[stage.exit], True)
        return found

    def improving(self, feeds: dict[str, Array]) -> Iterator[Array]:
        """Yield the real outputs of every exit, by depth, computing a stage only when it is asked for."""
        pool = dict(feeds)
        for stage in self._stages:
            pool.update(stage.session.run(pool))
            yield stage.adapt(pool[stage.exit], True)

    def _run_row(self, pool: dict[str, Array], deepest: int, until: float | None) -> Answered:
        """Run one sample: nothing to compact, nothing to copy between stages, and a quick form of the gate."""
        outputs: list[Array] = []
        for index, stage in enumerate(self._stages):
            pool.update(stage.session.run(pool))
            if self._adopt_at[index] > 0:
                self._adopt(index, pool)
            outputs.append(stage.adapt(pool[stage.exit], True))
            if index == deepest or self._leaves(index, outputs) or self._too_late(index, 1, until):
                break
        if index == self._last:
            self._check_numbers(outputs[-1], np.zeros(1, np.intp))
        return Answered(outputs[-1], np.array([index]))

    def _adopt(self, index: int, pool: dict[str, Array]) -> None:
        """Once a session's outputs lie where they stay, have the stage read its inputs there.

        What the caller gave lies elsewhere every time: a stage that takes an input of the model goes on copying.
        """
        self._adopt_at[index] -= 1
        session = self._stages[index].session
        if self._adopt_at[index] > 0 or not isinstance(session, Adopting):
            return
        names = [port.name for port in session.stage.takes]
        if not any(name in self._inputs for name in names):
            session.adopt({name: pool[name] for name in names})

    def _leaves(self, index: int, outputs: list[Array]) -> bool:
        return self._gate is not None and self._gate.row_leaves(index, outputs)

    def _run_rows(self, pool: dict[str, Array], rows: int, deepest: int, until: float | None) -> Answered:
        going = np.arange(rows)
        history: list[Array] = []
        exit_indices = np.empty(rows, np.intp)
        answer: Array | None = None
        for index, stage in enumerate(self._stages):
            pool.update(stage.session.run(pool))
            history.append(stage.adapt(pool[stage.exit], True))
            last = index == deepest or self._too_late(index, len(going), until)
            leaves = np.ones(len(going), bool) if last else self._leave(index, history)
            answer = np.empty((rows, *history[-1].shape[1:]), history[-1].dtype) if answer is None else answer
            if index == self._last:
                self._check_numbers(history[-1], going)
            self._note(going[leaves], [output[leaves] for output in history], answer, exit_indices)
            if leaves.all():
                break
            if leaves.any():
                kept = np.flatnonzero(~leaves)
                going, history = going[kept], [output[kept] for output in history]
                self._compact(pool, stage.alive, kept)
        assert answer is not None
        return Answered(answer, exit_indices)

    def _leave(self, index: int, history: list[Array]) -> Array:
        if self._gate is None:
            return np.zeros(len(history[-1]), bool)
        return self._gate.leaves(index, history)

    def _note(self, places: Array, history: list[Array], answer: Array, exit_indices: Array) -> None:
        """Write down the answers of samples that leave; with recall, each sample's surest so far."""
        chosen = np.full(len(places), len(history) - 1)
        if self._recall and self._gate is not None:
            scores = [self._gate.scores(k, history[: k + 1]) for k in range(len(history))]
            chosen = answering_exits(np.stack(scores, axis=1))[:, -1]
        for index, output in enumerate(history):
            taken = chosen == index
            answer[places[taken]] = output[taken]
        exit_indices[places] = chosen

    def _compact(self, pool: dict[str, Array], alive: tuple[str, ...], kept: Array) -> None:
        for name in alive:
            pool[name] = pool[name].take(kept, axis=0)

    def _too_late(self, index: int, rows: int, until: float | None) -> bool:
        if until is None or self._times is None or index == self._last:
            return False
        cost = self._times.stages[index + 1]
        return perf_counter() + cost.fixed + cost.per_row * rows > until

    def _deepest(self, max_exit: int | None) -> int:
        if max_exit is None:
            return self._last
        if not 0 <= max_exit <= self._last:
            raise ConfigError(f"max_exit is {max_exit}: this model has exits 0 to {self._last}")
        return max_exit

    def _check_numbers(self, answer: Array, places: Array) -> None:
        if answer.dtype.kind == "f" and np.isnan(answer.sum()):
            bad = np.isnan(answer.reshape(len(answer), -1)).any(axis=1)
            if bad.any():
                place = int(places[bad.argmax()])
                raise TargetError(f"sample {place}: the last exit '{self.answer_name}' answers NaN; check the input")

    def _count(self, exit_indices: Array, *, free: bool) -> None:
        """Count exits; only where nothing but the policy decided can they be held against the certified shares."""
        if len(exit_indices) == 1:
            index = int(exit_indices[0])
            self.counts[index] += 1
            warning = self._shares.add(index) if free and self._shares is not None else None
        else:
            leavers = np.bincount(exit_indices, minlength=self._last + 1).tolist()
            self.counts = [before + left for before, left in zip(self.counts, leavers, strict=True)]
            warning = self._shares.add_batch(leavers) if free and self._shares is not None else None
        if warning is not None:
            _log.warning("%s", warning)


def _stage(
    sessions: tuple[Session, ...], index: int, batched_inputs: frozenset[str], outputs: Mapping[str, TensorSpec]
) -> _Stage:
    spec = sessions[index].stage
    later = {port.name for session in sessions[index + 1 :] for port in session.stage.takes}
    there = {port.name for session in sessions[: index + 1] for port in session.stage.adds} | batched_inputs
    if spec.exit_output is None:
        raise ConfigError(f"stage '{spec.name}' has no exit: convert the model again")
    port = next(port for port in spec.adds if port.name == spec.exit_output)
    return _Stage(
        sessions[index], spec.exit_output, output_adapter(port, outputs.get(port.name)), tuple(sorted(later & there))
    )
