"""Target ``tflite-cpu``: .tflite files on the CPU, by ai-edge-litert, else by its predecessor tflite-runtime."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NoReturn

import numpy as np

from ipj_edge import host
from ipj_edge.bundles.manifest import Bundle, StageSpec
from ipj_edge.bundles.sealed_files import SealedFile, seal_file
from ipj_edge.errors import (
    BundleError,
    ConfigError,
    InputError,
    MissingDependencyError,
    TargetError,
    TargetUnavailableError,
    first_line,
    reading,
)
from ipj_edge.protocols import Array, Feeds, Resettable, Session, Target
from ipj_edge.values import Availability, Boundary, EffectiveSettings, Port, Precision, Settings
from ipj_edge_targets.tflite_engine import (
    INSTALL,
    Engine,
    find_engine,
    installed_versions,
    numpy_conflict,
    open_interpreter,
)

_NAME = "tflite-cpu"
_CONVERSIONS = frozenset({"QUANTIZE", "DEQUANTIZE", "CAST", "DELEGATE"})
_SHORT = {"float32": "f32", "float16": "f16"}

_Calls = tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any], Callable[..., Any]]


class TfliteCpu:
    """Runs .tflite files with XNNPACK, the engine's default delegate, where it takes the model's operators."""

    name = _NAME
    engine = "ai-edge-litert"
    precisions: tuple[Precision, ...] = ("fp32", "fp16", "int8")
    boundaries: tuple[Boundary, ...] = ("package", "board", "wall")
    checks_files = True

    def availability(self) -> Availability:
        """Say whether an engine is installed that works with this numpy; loads no model."""
        engine = find_engine(installed_versions())
        if engine is None:
            return Availability(available=False, reason="ai-edge-litert is not installed", fix=INSTALL)
        conflict = numpy_conflict(engine, np.__version__)
        if conflict:
            return Availability(available=False, reason=conflict, fix=INSTALL, version=engine.version)
        try:
            import_module(engine.module)
        except ImportError as error:
            reason = f"{engine.distribution} {engine.version} cannot be imported: {error}"
            return Availability(available=False, reason=reason, fix=INSTALL, version=engine.version)
        return Availability(available=True, reason=engine.distribution, version=engine.version)

    def open(self, bundle: Bundle, settings: Settings) -> tuple[Session, ...]:
        """Load every stage of a bundle.

        Raises:
            MissingDependencyError: no engine is installed.
            TargetUnavailableError: the engine does not work with this numpy, or a stage is not in its precision.
            BundleError: the engine refuses a file, or the file is not what the manifest says.
            ConfigError: fewer than one thread.
        """
        engine = find_engine(installed_versions())
        if engine is None:
            raise MissingDependencyError(_NAME, "ai_edge_litert")
        conflict = numpy_conflict(engine, np.__version__)
        if conflict:
            raise TargetUnavailableError(f"{conflict}: {INSTALL}")
        threads = host.default_threads() if settings.threads is None else settings.threads
        if threads < 1:
            raise ConfigError(f"threads is {threads}; '{_NAME}' needs at least 1")
        keeps_resources = any(tensor.kind == "resource" for tensor in bundle.manifest.state)
        sessions = [
            TfliteSession(
                seal_file(bundle, stage.file), stage, engine=engine, threads=threads, keeps_resources=keeps_resources
            )
            for stage in bundle.manifest.stages
        ]
        if not settings.allow_fallback:
            for session in sessions:
                _check_precision(session)
        return tuple(sessions)


class TfliteSession:
    """One stage in one interpreter. `run` returns fresh arrays; nothing of the engine's memory is handed out.

    Attributes:
        stage: The stage as its manifest describes it.
        effective: How it really runs.
    """

    def __init__(
        self, copy: SealedFile, stage: StageSpec, *, engine: Engine, threads: int, keeps_resources: bool = False
    ) -> None:
        self.stage = stage
        # Kept for clones, and because the engine runs from the mapped file.
        self._copy, self._engine, self._threads = copy, engine, threads
        self._keeps_resources = keeps_resources
        interpreter = self._open()
        self.effective = _effective(interpreter, stage, engine=engine, threads=threads)
        self._takes = _bound(stage.takes, interpreter.get_input_details(), copy.name)
        self._adds = _bound(stage.adds, interpreter.get_output_details(), copy.name)
        self._bind(interpreter)

    def _open(self) -> Any:
        return open_interpreter(self._copy, self._engine, threads=self._threads)

    def _bind(self, interpreter: Any) -> None:
        # Bound once: looking the methods up costs as much as a third of a microsecond per call. In one assignment: an
        # interrupt between two would leave a session that fills one interpreter and runs another.
        self._calls: _Calls = (
            interpreter.set_tensor,
            interpreter.invoke,
            interpreter.get_tensor,
            interpreter.reset_all_variables,
        )

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """Run one inference on engine tensors, see `Session.run`; the arrays returned are the caller's own.

        Views of the engine's memory would block the next call, and on small tensors they were slower.

        Raises:
            InputError: an array is missing, or the engine refuses it.
            TargetError: the session is closed, or the engine failed.
        """
        put, invoke, get, _ = self._calls
        try:
            for name, index in self._takes:
                put(index, feeds[name])
        except KeyError as error:
            raise InputError(f"no array for {error}; this stage takes {[name for name, _ in self._takes]}") from error
        except ValueError as error:
            raise InputError(f"the engine refuses an array: {first_line(error)}") from error
        try:
            invoke()
        except (RuntimeError, ValueError) as error:
            raise TargetError(f"the engine failed on '{self._copy.name}': {first_line(error)}") from error
        return {name: get(index) for name, index in self._adds}

    def reset(self) -> None:
        """Set the variables of recurrent operators back to zero; see `Model.reset`.

        The engine has no call for variables that operators share (resources): the file is opened anew for these.

        Raises:
            TargetError: the session is closed, or the engine failed.
        """
        if self._calls is _CLOSED:
            _closed()
        if self._keeps_resources:
            self._bind(self._open())
            return
        try:
            self._calls[3]()
        except RuntimeError as error:
            raise TargetError(f"the engine cannot set its state back: {first_line(error)}") from error

    def clone(self) -> TfliteSession:
        """Return a session that may run beside this one; both map the same copy, each packs its own weights.

        Raises:
            TargetError: the session is closed.
        """
        if self._calls is _CLOSED:
            _closed()
        return type(self)(
            self._copy,
            self.stage,
            engine=self._engine,
            threads=self._threads,
            keeps_resources=self._keeps_resources,
        )

    def close(self) -> None:
        """Release the engine's memory. Calling twice is allowed."""
        self._calls = _CLOSED


def _closed(*_: object) -> NoReturn:
    raise TargetError("this session is closed: load the bundle again")


_CLOSED: _Calls = (_closed, _closed, _closed, _closed)


def _bound(ports: tuple[Port, ...], details: list[dict[str, Any]], file: str) -> tuple[tuple[str, int], ...]:
    """Return pool name and tensor index of every port.

    Raises:
        BundleError: the file has no such tensor, or one of another shape, dtype or scale.
    """
    by_name = {detail["name"]: detail for detail in details}
    bound = []
    for port in ports:
        detail = by_name.get(port.engine_name)
        if detail is None:
            raise BundleError(f"'{file}' has no tensor '{port.engine_name}'; it has {list(by_name)}")
        expected, found = _facts_of_port(port), _facts_of_detail(detail)
        if expected != found:
            raise BundleError(f"tensor '{port.engine_name}' of '{file}' is {found}; the manifest says {expected}")
        bound.append((port.name, int(detail["index"])))
    return tuple(bound)


def _facts_of_port(port: Port) -> tuple[object, ...]:
    quantization = port.quantization
    scale = (0.0, 0) if quantization is None else (float(np.float32(quantization.scale)), quantization.zero_point)
    return port.dtype, tuple(port.shape), *scale


def _facts_of_detail(detail: dict[str, Any]) -> tuple[object, ...]:
    scale, zero_point = detail["quantization"]
    shape = tuple(int(size) for size in detail["shape"])
    return np.dtype(detail["dtype"]).name, shape, float(np.float32(scale)), int(zero_point)


def _effective(interpreter: Any, stage: StageSpec, *, engine: Engine, threads: int) -> EffectiveSettings:
    with reading(f"'{stage.file}'", BundleError):  # names in it may be no text
        operators = _operators(interpreter)
        precision = _manifest_precision(stage) if operators is None else _precision(interpreter, operators)
    read_back = () if operators is None else ("execution_precision", "providers")
    delegated = any(operator["op_name"] == "DELEGATE" for operator in operators or ())
    return EffectiveSettings(
        engine=engine.distribution,
        engine_version=engine.version,
        threads=threads,
        execution_precision=precision,
        # No delegate is passed in, so one that took operators is the default one.
        providers=("XNNPACK",) if delegated else (),
        affinity=host.affinity(),
        cpu_quota=host.cpu_quota(),
        read_back=read_back,
    )


def _operators(interpreter: Any) -> list[dict[str, Any]] | None:
    """Return the engine's operators, delegates included; None where it lists none (the call is not public)."""
    details = getattr(interpreter, "_get_ops_details", None)
    return None if details is None else details()


def _manifest_precision(stage: StageSpec) -> str:
    # Weights stored in float16 are widened when the file is loaded.
    return {"fp32": "f32", "fp16": "f32"}.get(stage.precision, stage.precision)


def _precision(interpreter: Any, operators: list[dict[str, Any]]) -> str:
    """Return what the operators of the main graph compute in: ``f32``, ``int8``, or ``int8+f32`` for a mixture.

    That is what they produce; one that makes floats of an int8 weight (dynamic int8) computes in both.
    """
    dtypes = {detail["index"]: np.dtype(detail["dtype"]).name for detail in interpreter.get_tensor_details()}
    computing = [operator for operator in operators if operator["op_name"] not in _CONVERSIONS]
    produced = {dtypes.get(int(tensor)) for operator in computing for tensor in operator["outputs"]}
    taken = {dtypes.get(int(tensor)) for operator in computing for tensor in operator["inputs"]}
    produced |= taken & {"int8"}
    names = ("int8", "uint8", "int16", "float16", "float32")
    kinds = [_SHORT.get(name, name) for name in names if name in produced]
    return "+".join(kinds) or "none"


def _check_precision(session: TfliteSession) -> None:
    effective = session.effective
    confirmed = "execution_precision" in effective.read_back
    if confirmed and session.stage.precision == "int8" and "int8" not in effective.execution_precision:
        raise TargetUnavailableError(
            f"stage '{session.stage.name}' is int8 in the manifest, but the engine computes in "
            f"{effective.execution_precision}: convert the model again"
        )


_: type[Target] = TfliteCpu
_resettable: type[Resettable] = TfliteSession
