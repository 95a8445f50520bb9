"""Load a bundle and run it: one API for every target.

Callers speak the source's layout and real values. What an engine's file wants instead (integers with a scale, one
sample at a time) is done here, once, the same for all targets.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any

import msgspec
import numpy as np

from ipj_edge.bundle import open_bundle
from ipj_edge.data import shape_text
from ipj_edge.errors import InputError, TargetError, TargetUnavailableError
from ipj_edge.manifest import Bundle, Manifest
from ipj_edge.plugins import load_target
from ipj_edge.preprocess import apply
from ipj_edge.protocols import Array, Resettable, Session
from ipj_edge.values import EffectiveSettings, Port, Settings, TensorSpec


class Result:
    """What a model answered.

    Attributes:
        outputs: Real values by output name; the first axis is the batch.
        exit_index: Stage that answered (0 for a plain model).
        latency_s: Seconds from call to answer, adaptation of inputs and outputs included.
    """

    __slots__ = ("exit_index", "latency_s", "outputs")

    def __init__(self, outputs: dict[str, Array], exit_index: int, latency_s: float) -> None:
        self.outputs, self.exit_index, self.latency_s = outputs, exit_index, latency_s

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}: {value.shape}" for name, value in self.outputs.items())
        return f"Result({shapes}; exit {self.exit_index}; {1e6 * self.latency_s:.1f} µs)"


def load(
    path: str | Path,
    *,
    threads: int | None = None,
    spinning: bool = False,
    allow_fallback: bool = False,
) -> Model:
    """Open a bundle, check every file of it and load it on its target.

    Args:
        path: The bundle's folder.
        threads: Inference threads; None means min(affinity, cgroup quota).
        spinning: Let idle engine threads spin; faster back to back, costs CPU time between inferences.
        allow_fallback: Accept effective settings that differ from the requested ones.

    Raises:
        BundleError: damaged, or of an unknown version.
        PluginNotFoundError: no plugin for the bundle's target.
        MissingDependencyError: the target's engine is not installed.
        TargetUnavailableError: a setting, precision or instruction set is not to be had as requested.
    """
    settings = Settings(threads=threads, spinning=spinning, allow_fallback=allow_fallback)
    return open_model(open_bundle(path), settings)


def open_model(bundle: Bundle, settings: Settings, *, on: str | None = None) -> Model:
    """Load an already checked bundle; see `load`.

    Args:
        bundle: The bundle.
        settings: How to run it.
        on: Target that stands in for the bundle's own (see `HasProxy`); None runs it where it belongs.
    """
    stands_in = on is not None and on != bundle.manifest.target
    target = load_target(on if on is not None else bundle.manifest.target)
    if bundle.manifest.precision not in target.precisions and not stands_in:
        raise TargetUnavailableError(
            f"'{target.name}' does not run {bundle.manifest.precision}; it runs {', '.join(target.precisions)}"
        )
    opened = _with_proxy_files(bundle) if stands_in else bundle
    return Model(bundle.manifest, target.open(opened, settings), settings)


def _with_proxy_files(bundle: Bundle) -> Bundle:
    """Return the bundle with the files that a stand-in runs where it cannot run the target's own."""
    stages = tuple(
        stage if stage.proxy_file is None else msgspec.structs.replace(stage, file=stage.proxy_file)
        for stage in bundle.manifest.stages
    )
    return Bundle(path=bundle.path, manifest=msgspec.structs.replace(bundle.manifest, stages=stages))


class Model:
    """A bundle's stages on a target. One caller at a time; use `clone` for another thread.

    Attributes:
        manifest: The bundle's manifest.
        requested: Settings asked for.
        effective: How each stage really runs.
    """

    def __init__(self, manifest: Manifest, sessions: tuple[Session, ...], requested: Settings) -> None:
        self.manifest = manifest
        self.requested = requested
        self.effective: tuple[EffectiveSettings, ...] = tuple(session.effective for session in sessions)
        self._sessions = sessions
        self._busy = threading.Lock()
        ports = {port.name: port for session in sessions for port in session.stage.takes}
        self._inputs = tuple(_InputAdapter(spec, ports[spec.name]) for spec in manifest.inputs)
        self._only = self._inputs[0] if len(self._inputs) == 1 else None
        adds = {port.name: port for session in sessions for port in session.stage.adds}
        self._outputs = tuple((spec.name, _output_adapter(spec, adds[spec.name])) for spec in manifest.outputs)
        self._batched_outputs = {spec.name for spec in manifest.outputs if spec.batch_axis is not None}
        self._dynamic = manifest.batch.static is None
        self._at_once = manifest.batch.static or manifest.batch.max

    def run(self, inputs: Array | Mapping[str, Array], *, copy: bool = True) -> Result:
        """Run the model.

        A missing batch axis is added (the outputs keep theirs). A batch larger than the engine takes at once is run
        in parts. Arrays need not be contiguous.

        Args:
            inputs: The only input's array, or arrays by input name, in the source's layout, dtype and range.
            copy: False may return views of engine memory, valid until the next call.

        Raises:
            InputError: wrong name, shape or dtype (states what was expected and what came), or a second caller.
        """
        start = perf_counter()
        if not self._busy.acquire(blocking=False):
            raise InputError("this model is already running in another thread: give each thread its own model.clone()")
        try:
            feeds, rows = self._accept(inputs)
            if rows == self._at_once or (self._dynamic and 0 < rows < self._at_once):
                outputs = self._run_once(feeds, copy)
            else:
                outputs = self._run_in_parts(feeds, rows)
        finally:
            self._busy.release()
        return Result(outputs, len(self._sessions) - 1, perf_counter() - start)

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
        return Model(self.manifest, tuple(session.clone() for session in self._sessions), self.requested)

    def reset(self) -> None:
        """Set back what the model keeps from one call to the next, as after loading; nothing for most models.

        A stateful model goes on from call to call: that is a stream, and `reset` begins a new one. Several samples
        given at once are no stream but independent: each begins afresh, and so does the call after them.

        Raises:
            TargetError: the bundle keeps a state that its target's session cannot set back.
        """
        for session in self._sessions if self.manifest.state else ():
            if not isinstance(session, Resettable):
                raise TargetError(f"'{self.manifest.target}' cannot set back the state of this model: load it again")
            session.reset()

    def close(self) -> None:
        """Release the engine's memory. Calling twice is allowed."""
        for session in self._sessions:
            session.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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

    def _run_once(self, feeds: dict[str, Array], copy: bool) -> dict[str, Array]:
        pool = feeds
        for session in self._sessions:
            pool = {**pool, **session.run(pool)} if len(self._sessions) > 1 else session.run(pool)
        return {name: adapt(pool[name], copy) for name, adapt in self._outputs}

    def _run_in_parts(self, feeds: dict[str, Array], rows: int) -> dict[str, Array]:
        if rows == 0:
            raise InputError("the batch is empty: give at least one sample")
        if not self._dynamic and rows % self._at_once:
            raise InputError(f"this bundle takes batches of {self._at_once}: {rows} samples do not fill them")
        batched = {adapter.name for adapter in self._inputs if adapter.batched}
        parts = []
        for start in range(0, rows, self._at_once):
            self.reset()
            part = {
                name: value[start : start + self._at_once] if name in batched else value
                for name, value in feeds.items()
            }
            parts.append(self._run_once(part, copy=True))
        self.reset()
        return {
            name: np.concatenate([part[name] for part in parts]) if name in self._batched_outputs else value
            for name, value in parts[0].items()
        }


class _InputAdapter:
    """Checks one input against its spec and turns it into the engine's tensor."""

    __slots__ = ("_dtype", "_ndim", "_quantize", "_spec", "_tail", "batched", "name")

    def __init__(self, spec: TensorSpec, port: Port) -> None:
        self.name = spec.name
        self.batched = spec.batch_axis is not None
        self._spec = spec
        self._dtype = np.dtype(spec.dtype)
        self._ndim = len(spec.shape)
        self._tail = spec.shape[1:] if self.batched else spec.shape
        self._quantize = _quantizer(port) or _caster(port, spec)

    def rows(self, array: Array) -> int:
        """Return the number of samples in an accepted array."""
        return array.shape[0] if self.batched else 1

    def accept(self, value: Any) -> Array:
        """Return the engine's tensor for one input.

        Raises:
            InputError: wrong shape or dtype.
        """
        array = value if isinstance(value, np.ndarray) else self._from_python(value)
        if array.dtype != self._dtype:
            raise InputError(
                f"'{self.name}': expected dtype {self._dtype}, got {array.dtype}; convert with .astype('{self._dtype}')"
            )
        if self.batched and array.ndim == self._ndim - 1:
            array = array[None]
        if (array.shape[1:] if self.batched else array.shape) != self._tail and not self._fits(array):
            raise InputError(f"'{self.name}': expected shape {shape_text(self._spec)}, got {np.shape(value)}")
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        return array if self._quantize is None else self._quantize(array)

    def _from_python(self, value: Any) -> Array:
        try:
            return np.asarray(value, dtype=self._dtype)
        except (TypeError, ValueError) as error:
            raise InputError(f"'{self.name}': expected an array of {self._dtype}: {error}") from error

    def _fits(self, array: Array) -> bool:
        """Compare shapes where sizes beyond the batch may be dynamic."""
        shape = array.shape[1:] if self.batched else array.shape
        if array.ndim != self._ndim:
            return False
        return all(isinstance(want, str) or want == have for want, have in zip(self._tail, shape, strict=True))


def _quantizer(port: Port) -> Callable[[Array], Array] | None:
    """Return a function from real values to the engine's integers: divide, round half to even, shift, clip."""
    if port.quantization is None:
        return None
    kind = np.dtype(port.dtype)
    limits = np.iinfo(kind)
    inverse = np.float32(1.0 / port.quantization.scale)
    zero = np.float32(port.quantization.zero_point)
    low, high = np.float32(limits.min), np.float32(limits.max)

    def quantize(array: Array) -> Array:
        values = np.multiply(array, inverse, dtype=np.float32)
        np.rint(values, out=values)
        np.add(values, zero, out=values)
        np.maximum(values, low, out=values)
        np.minimum(values, high, out=values)
        return values.astype(kind)

    return quantize


def _caster(port: Port, spec: TensorSpec) -> Callable[[Array], Array] | None:
    """Return a function to the engine's dtype where that is another one, e.g. float16 for float32."""
    wanted, given = np.dtype(port.dtype), np.dtype(spec.dtype)
    return (lambda array: array.astype(wanted)) if wanted != given and wanted.kind == given.kind else None


def _output_adapter(spec: TensorSpec, port: Port) -> Callable[[Array, bool], Array]:
    """Return a function from the engine's tensor to the caller's real values."""
    wanted, given = np.dtype(spec.dtype), np.dtype(port.dtype)
    if port.quantization is None and wanted != given and wanted.kind == given.kind:
        return lambda array, _copy: array.astype(wanted)
    if port.quantization is None:
        return lambda array, copy: array.copy() if copy else array
    scale, zero = np.float32(port.quantization.scale), np.float32(port.quantization.zero_point)

    def dequantize(array: Array, _copy: bool) -> Array:
        values = np.subtract(array, zero, dtype=np.float32)
        return np.multiply(values, scale, out=values)

    return dequantize
