"""Load a bundle and run it: one API for every target.

Callers speak the source's layout and real values. What an engine's file wants instead (integers with a scale, one
sample at a time) is done here, once, the same for all targets.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Literal

import numpy as np

from ipj_edge.bundles.bundle import open_bundle
from ipj_edge.bundles.manifest import Bundle, Manifest
from ipj_edge.errors import ConfigError, InputError, TargetError
from ipj_edge.exits import ExitPolicy
from ipj_edge.protocols import Array, Resettable, Session
from ipj_edge.runtime.adaptation import InputAdapter, output_adapter
from ipj_edge.runtime.chain import Answered, Chain
from ipj_edge.runtime.programs import Programs, open_programs
from ipj_edge.samples.preprocess import apply
from ipj_edge.values import EffectiveSettings, Settings, TensorSpec

Exits = ExitPolicy | Literal["auto", "off", "all"]


class Result:
    """What a model answered.

    Attributes:
        outputs: Real values by output name; the first axis is the batch. A model with several exits answers under
            the name of its last exit, whichever exit the answer is from.
        exit_indices: Exit each sample's answer is from, integers of shape (n,); the last for a plain or unsplit model.
        latency_s: Seconds from call to answer, adaptation of inputs and outputs included.
    """

    __slots__ = ("exit_indices", "latency_s", "outputs")

    def __init__(self, outputs: dict[str, Array], exit_indices: Array, latency_s: float) -> None:
        self.outputs, self.exit_indices, self.latency_s = outputs, exit_indices, latency_s

    @property
    def exit_index(self) -> int:
        """Deepest stage that an answer of this batch is from."""
        return int(self.exit_indices.max())

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}: {value.shape}" for name, value in self.outputs.items())
        return f"Result({shapes}; exit {self.exit_index}; {1e6 * self.latency_s:.1f} µs)"


def load(
    path: str | Path,
    *,
    threads: int | None = None,
    spinning: bool = False,
    allow_fallback: bool = False,
    allow_out_of_range: bool = False,
    exits: Exits = "auto",
    digest: str | None = None,
    key: str | Path | None = None,
) -> Model:
    """Open a bundle, check every file of it and load it on its target.

    Args:
        path: The bundle's folder.
        threads: Inference threads; None means min(affinity, cgroup quota).
        spinning: Let idle engine threads spin; faster back to back, costs CPU time between inferences.
        allow_fallback: Accept effective settings that differ from the requested ones.
        allow_out_of_range: Accept whole numbers outside the range that an input declares; what the model answers then
            was never proven.
        exits: For a bundle with several exits: ``auto`` leaves early as its ``exits.json`` says, and not at all
            without one; ``off`` never does; ``all`` loads the stages and leaves only where `Model.run` is told to;
            a policy is used as it is, certified or not.
        digest: Accept only the bundle whose manifest has this digest.
        key: Public key file (PEM, Ed25519): accept only a bundle signed with it.

    Raises:
        BundleError: damaged, impossible, not the one asked for, of an unknown version, or its exits were tuned for
            other files or settings.
        PluginNotFoundError: no plugin for the bundle's target.
        MissingDependencyError: the target's engine is not installed.
        TargetUnavailableError: a setting, precision or instruction set is not to be had as requested.
        ConfigError: exits were asked for and the bundle has one.
    """
    settings = Settings(
        threads=threads, spinning=spinning, allow_fallback=allow_fallback, allow_out_of_range=allow_out_of_range
    )
    return open_model(open_bundle(path, leave_programs=True, digest=digest, key=key), settings, exits=exits)


def open_model(bundle: Bundle, settings: Settings, *, exits: Exits = "auto", on: str | None = None) -> Model:
    """Load an already checked bundle; see `load`.

    Args:
        bundle: The bundle.
        settings: How to run it.
        exits: Whether and when to leave early.
        on: Target that stands in for the bundle's own (see `HasProxy`); None runs it where it belongs.
    """
    return Model(bundle.manifest, open_programs(bundle, settings, exits, on), settings)


class Model:
    """A bundle on its target. One caller at a time; use `clone` for another thread.

    Attributes:
        manifest: The bundle's manifest.
        requested: Settings asked for.
        effective: How each stage really runs.
        policy: When samples leave early; None when they do not.
    """

    def __init__(self, manifest: Manifest, programs: Programs, requested: Settings) -> None:
        self.manifest = manifest
        self.requested = requested
        self.policy = programs.policy
        self._programs = programs
        self._whole = programs.whole
        sessions = self.sessions
        self.effective: tuple[EffectiveSettings, ...] = tuple(session.effective for session in sessions)
        self._busy = threading.Lock()
        self._improving: Iterator[Array] | None = None
        self._cut_short = False
        ports = {port.name: port for session in sessions for port in session.stage.takes}
        integers = manifest.precision == "int8"
        self._inputs = tuple(
            InputAdapter(
                spec,
                ports[spec.name],
                refuse_nan=integers,
                check_range=not requested.allow_out_of_range,
                only_size=manifest.batch.only_size,
            )
            for spec in manifest.inputs
        )
        self._only = self._inputs[0] if len(self._inputs) == 1 else None
        self._batched = frozenset(adapter.name for adapter in self._inputs if adapter.batched)
        self._batched_outputs = {spec.name for spec in manifest.outputs if spec.batch_axis is not None}
        self._dynamic = manifest.batch.static is None
        self._at_once = manifest.batch.static or manifest.batch.max
        self._only_size = manifest.batch.only_size
        specs = {spec.name: spec for spec in manifest.outputs}
        self._chain = Chain(programs, self._batched, specs) if programs.stages else None
        self._outputs = tuple(
            (port.name, output_adapter(port, specs.get(port.name))) for port in self._whole.stage.adds
        )
        self._last_exit = len(manifest.stages) - 1

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The outputs that `run` answers with: all of a plain model, the last exit of one with several."""
        if len(self.manifest.stages) == 1:
            return self.manifest.outputs
        last = self.manifest.stages[-1].exit_output
        return tuple(spec for spec in self.manifest.outputs if spec.name == last)

    @property
    def sessions(self) -> tuple[Session, ...]:
        """The loaded programs: one session a stage, or the whole program's."""
        return self._programs.stages or (self._whole,)

    @property
    def exit_counts(self) -> tuple[int, ...]:
        """Samples answered by each exit so far; empty for a model that does not leave early."""
        return () if self._chain is None else tuple(self._chain.counts)

    def run(
        self,
        inputs: Array | Mapping[str, Array],
        *,
        copy: bool = True,
        max_exit: int | None = None,
        deadline_s: float | None = None,
    ) -> Result:
        """Run the model.

        A missing batch axis is added (the outputs keep theirs). A batch larger than the engine takes at once is run
        in parts. Arrays need not be contiguous.

        Args:
            inputs: The only input's array, or arrays by input name, in the source's layout, dtype and range.
            copy: False may return views of engine memory, valid until the next call.
            max_exit: Deepest exit to run to; None for the last.
            deadline_s: Seconds from now by which to answer: the deepest exit that fits, the first in any case.

        Raises:
            InputError: wrong name, shape or dtype (states what was expected and what came), or a second caller.
            ConfigError: max_exit or deadline_s for a model that was not loaded with its stages.
        """
        start = perf_counter()
        if self._busy.locked():
            raise _occupied()
        with self._busy:
            self._begin()
            feeds, rows = self._accept(inputs)
            if self._chain is not None:
                until = None if deadline_s is None else start + deadline_s
                answered = self._staged(self._chain, feeds, rows, max_exit, until)
                outputs, exit_indices = {self._chain.answer_name: answered.answer}, answered.exit_indices
            else:
                self._need_no_stages(max_exit, deadline_s)
                outputs = self._plain(feeds, rows, copy)
                exit_indices = np.array([self._last_exit]) if rows == 1 else np.full(rows, self._last_exit)
        return Result(outputs, exit_indices, perf_counter() - start)

    def run_every_output(self, inputs: Array | Mapping[str, Array]) -> dict[str, Array]:
        """Return the real values of every output that the loaded programs have, those of all exits included.

        Of an output without a batch axis it is the value of the first part, where a batch is run in parts.

        Raises:
            InputError: see `run`.
        """
        chain = self._chain
        if self._busy.locked():
            raise _occupied()
        with self._busy:
            self._begin()
            feeds, rows = self._accept(inputs)
            if chain is None:
                return self._plain(feeds, rows, True, may_differ=True)
            parts = [chain.every(part) for part, _ in self._parts(feeds, rows)]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def improve(self, inputs: Array | Mapping[str, Array]) -> Iterator[Result]:
        """Yield an answer after every stage, each deeper than the one before; stop iterating to stop computing.

        Raises:
            InputError: see `run`; or the model ran something else between two answers, which ends the older ones.
            ConfigError: the model was not loaded with its stages, or there are more samples than it takes at once.
        """
        chain, start = self._loaded_chain(), perf_counter()
        if self._busy.locked():
            raise _occupied()
        with self._busy:
            self._begin()
            feeds, rows = self._accept(inputs)
            if rows > self._at_once:
                raise ConfigError(f"answers improve for {self._at_once} samples at once; {rows} came")
            steps = self._improving = chain.improving(feeds)
        return self._improved(steps, chain.answer_name, rows, start)

    def run_image(self, rgb: Array) -> Result:
        """Run the model on one RGB image, uint8 of shape (height, width, 3), through the manifest's preprocessing.

        Raises:
            InputError: the bundle has no preprocessing for its only input, or rgb is no such image.
        """
        spec = self.manifest.inputs[0]
        rule = self.manifest.preprocessing.get(spec.name)
        if rule is None or len(self.manifest.inputs) != 1:
            raise InputError("this bundle does not say how an image becomes its input: convert it with --preprocess")
        return self.run(apply(rgb, rule, spec.dtype))

    def clone(self) -> Model:
        """Return a model for another thread that shares the weights where the engine can."""
        return Model(self.manifest, self._programs.clone(), self.requested)

    def reset(self) -> None:
        """Set back what the model keeps from one call to the next, as after loading; nothing for most models.

        A stateful model goes on from call to call: that is a stream, and `reset` begins a new one. Several samples
        given at once are no stream but independent: each begins afresh, and so does the call after them.

        Raises:
            InputError: the model is running in another thread.
            TargetError: the bundle keeps a state that its target's session cannot set back.
        """
        if self._busy.locked():
            raise _occupied()
        with self._busy:
            self._begin()
            self._reset()

    def close(self) -> None:
        """Release the engine's memory. Calling twice is allowed."""
        self._programs.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Every caller takes the lock in the same two lines: look, then `with`. A signal between any two instructions leaves
    # it free; `acquire` before `try`, a flag, a context manager of our own do not (tests/contract/runtime). Of two
    # callers who look at the same moment one waits for the other.

    def _begin(self) -> None:
        """End the answers that an earlier caller may still be improving, and begin afresh where one was cut short."""
        self._improving = None
        if self._cut_short:
            self._reset()
            self._cut_short = False

    def _improved(self, steps: Iterator[Array], name: str, rows: int, start: float) -> Iterator[Result]:
        """Take one step after the other, each as the one caller: what lies between two steps is engine memory."""
        for index in range(len(self.manifest.stages)):
            if self._busy.locked():
                raise _occupied()
            with self._busy:
                if steps is not self._improving:
                    raise InputError("the model ran something else since the last answer: call improve again")
                answer = next(steps)
            yield Result({name: answer}, np.full(rows, index, np.intp), perf_counter() - start)

    def _reset(self) -> None:
        for session in self.sessions if self.manifest.state else ():
            if not isinstance(session, Resettable):
                raise TargetError(f"'{self.manifest.target}' cannot set back the state of this model: load it again")
            session.reset()

    def _accept(self, inputs: Array | Mapping[str, Array]) -> tuple[dict[str, Array], int]:
        """Check and adapt the inputs; return them by name with the number of rows."""
        if self._only is not None and not isinstance(inputs, Mapping):
            array = self._only.accept(inputs)
            return {self._only.name: array}, self._only.rows(array)
        if not isinstance(inputs, Mapping):
            raise InputError(f"this model has several inputs: give a mapping of {self._names()} to arrays")
        if inputs.keys() != {adapter.name for adapter in self._inputs}:
            raise InputError(
                f"expected inputs named {self._names()}; got {', '.join(sorted(map(str, inputs))) or 'none'}"
            )
        feeds = {adapter.name: adapter.accept(inputs[adapter.name]) for adapter in self._inputs}
        rows = {adapter.rows(feeds[adapter.name]) for adapter in self._inputs if adapter.batched}
        if len(rows) > 1:
            raise InputError(f"inputs differ in their number of samples: {sorted(rows)}")
        return feeds, rows.pop() if rows else 1

    def _names(self) -> str:
        return ", ".join(adapter.name for adapter in self._inputs)

    def _plain(self, feeds: dict[str, Array], rows: int, copy: bool, *, may_differ: bool = False) -> dict[str, Array]:
        if rows == self._at_once or (self._dynamic and 0 < rows < self._at_once):
            made = self._whole.run(feeds)
            return {name: adapt(made[name], copy) for name, adapt in self._outputs}
        if not may_differ:
            self._refuse_other_sizes(rows)
        parts = [self._plain(part, size, True) for part, size in self._parts(feeds, rows)]
        return {name: self._joined(name, [part[name] for part in parts], may_differ) for name in parts[0]}

    def _joined(self, name: str, values: list[Array], may_differ: bool) -> Array:
        """Join what the parts of a batch answered; an output without a batch axis is the same for all, or an error."""
        if name in self._batched_outputs:
            return np.concatenate(values)
        if may_differ or all(
            np.array_equal(value, values[0], equal_nan=value.dtype.kind == "f") for value in values[1:]
        ):
            return values[0]
        raise InputError(
            f"output '{name}' has no batch axis and differs between the parts of this batch: give at most "
            f"{self._at_once} at once"
        )

    def _staged(
        self, chain: Chain, feeds: dict[str, Array], rows: int, max_exit: int | None, until: float | None
    ) -> Answered:
        if rows == self._at_once or (self._dynamic and 0 < rows < self._at_once):
            return chain.run(feeds, rows, max_exit, until)
        self._refuse_other_sizes(rows)
        parts = [chain.run(part, size, max_exit, until) for part, size in self._parts(feeds, rows)]
        return Answered(
            np.concatenate([part.answer for part in parts]), np.concatenate([part.exit_indices for part in parts])
        )

    def _parts(self, feeds: dict[str, Array], rows: int) -> Iterator[tuple[dict[str, Array], int]]:
        """Yield as many samples as the engine takes at once, with their number."""
        if rows == 0:
            raise InputError("the batch is empty: give at least one sample")
        if not self._dynamic and rows % self._at_once:
            raise InputError(f"this bundle takes batches of {self._at_once}: {rows} samples do not fill them")
        # A state left over from the middle of a batch is nobody's stream: `_begin` sets it back after an interrupt.
        self._cut_short = bool(self.manifest.state)
        for start in range(0, rows, self._at_once):
            self._reset()
            part = {
                name: value[start : start + self._at_once] if name in self._batched else value
                for name, value in feeds.items()
            }
            yield part, min(self._at_once, rows - start)
        self._reset()
        self._cut_short = False

    def _refuse_other_sizes(self, rows: int) -> None:
        if self._only_size:
            raise InputError(f"this bundle takes {self._at_once} samples, and {rows} came: {self._only_size}")

    def _loaded_chain(self) -> Chain:
        if self._chain is None:
            raise ConfigError('this model was not loaded with its stages: ipj_edge.load(…, exits="all")')
        return self._chain

    def _need_no_stages(self, max_exit: int | None, deadline_s: float | None) -> None:
        if max_exit is not None or deadline_s is not None:
            self._loaded_chain()


def _occupied() -> InputError:
    return InputError("this model is already running in another thread: give each thread its own model.clone()")
