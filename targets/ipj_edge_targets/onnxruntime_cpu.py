"""Target ``onnxruntime-cpu``: onnxruntime's CPU provider, one inference at a time."""

from __future__ import annotations

import re
from importlib.metadata import distributions
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from ipj_edge import host
from ipj_edge.bundles.manifest import GOLDEN_NAME, Bundle, StageSpec
from ipj_edge.bundles.placement import PLACEMENT_NAME
from ipj_edge.bundles.sealed_files import seal_file
from ipj_edge.errors import (
    BundleError,
    IpjEdgeError,
    MissingDependencyError,
    TargetError,
    TargetUnavailableError,
    message_lines,
)
from ipj_edge.plugins import needs
from ipj_edge.protocols import Array, Feeds, Session, Target
from ipj_edge.values import Availability, Boundary, EffectiveSettings, Precision, Settings
from ipj_edge_targets.fallback import require, require_isa, wanted_threads
from ipj_edge_targets.feeds import check_feeds

PROVIDER = "CPUExecutionProvider"
# fp16 files come here only where this target stands in for a GPU: x86 CPUs widen them to float32.
_EXECUTION_PRECISION = {"fp32": "f32", "int8": "int8", "fp16": "f32"}
_MAX_LANES = 16
_CODE = re.compile(r"^\d+ : [A-Z_]+ : ")
_ERRORS_ONLY = 3

Shapes = tuple[tuple[int, ...], ...]


class OnnxruntimeCpu:
    """Runs ONNX files on the CPU."""

    name = "onnxruntime-cpu"
    engine = "onnxruntime"
    precisions: tuple[Precision, ...] = ("fp32", "int8")
    boundaries: tuple[Boundary, ...] = ("package", "board", "wall")
    checks_files = True

    def availability(self) -> Availability:
        """Say whether onnxruntime is installed, and whether two of its packages have overwritten each other."""
        try:
            onnxruntime = _import_onnxruntime()
        except MissingDependencyError as error:
            return Availability(available=False, reason=str(error), fix=f"pip install 'ipj-edge[{self.name}]'")
        found = {name for each in distributions() if (name := each.metadata["Name"]) in PACKAGES}
        if found == PACKAGES:
            return Availability(
                available=True,
                reason="onnxruntime and onnxruntime-gpu are both installed and overwrite each other's files: "
                "what runs is whichever came last",
                fix="pip uninstall -y onnxruntime onnxruntime-gpu, then install the one you want",
                version=onnxruntime.__version__,
            )
        return Availability(available=True, version=onnxruntime.__version__)

    def open(self, bundle: Bundle, settings: Settings) -> tuple[Session, ...]:
        """Load every stage of a bundle.

        Raises:
            MissingDependencyError: onnxruntime is not installed.
            TargetUnavailableError: the provider, the precision or the instruction set cannot be had as requested.
            BundleError: onnxruntime refuses a file.
        """
        precision = bundle.manifest.precision
        if precision not in _EXECUTION_PRECISION:
            raise TargetUnavailableError(f"'{self.name}' runs {', '.join(self.precisions)}, not {precision}")
        require_isa(bundle.manifest, settings)
        onnxruntime = _import_onnxruntime()
        sessions = []
        for stage in bundle.manifest.stages:
            options = session_options(onnxruntime, settings)
            loaded = load(onnxruntime, bundle, stage.file, options, [PROVIDER])
            effective = _effective(onnxruntime, loaded, settings, _EXECUTION_PRECISION[stage.precision])
            sessions.append(OnnxruntimeSession(stage, loaded, effective))
        return tuple(sessions)


PACKAGES = {"onnxruntime", "onnxruntime-gpu"}


def _import_onnxruntime() -> Any:
    with needs("onnxruntime-cpu"):
        import onnxruntime
    return onnxruntime


def session_options(onnxruntime: Any, settings: Settings) -> Any:
    """Return the options every session of ours is opened with, GPU ones included."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = wanted_threads(settings)
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = _ERRORS_ONLY
    # Spinning threads wait for the next inference at 100 % of a core each.
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if settings.spinning else "0")
    return options


def load(onnxruntime: Any, bundle: Bundle, name: str, options: Any, providers: list[Any]) -> Any:
    """Open the sealed copy of a file, and of the weights beside it. The engine copies all it needs.

    Raises:
        BundleError: a file is damaged, or onnxruntime refuses it.
        TargetUnavailableError: there is no memory for it.
    """
    copy = seal_file(bundle, name)
    weights = [seal_file(bundle, each) for each in _external(bundle, name)]
    try:
        if weights:
            inside = [str(PurePosixPath(each.name).relative_to(PurePosixPath(name).parent)) for each in weights]
            mapped = [each.mapped() for each in weights]
            options.add_external_initializers_from_files_in_memory(inside, mapped, [len(each) for each in mapped])
        return onnxruntime.InferenceSession(str(copy.path), options, providers=providers)
    except engine_errors() as error:
        file = bundle.path / name
        raise BundleError(f"onnxruntime cannot load '{file.name}': {engine_message(error, file, copy.path)}") from error
    finally:
        for each in (copy, *weights):
            each.close()


def _external(bundle: Bundle, name: str) -> tuple[str, ...]:
    """Return the recorded files that may hold weights of a program: beside or below it, and no file of other use."""
    manifest = bundle.manifest
    programs = {file for stage in manifest.stages for file in (stage.file, stage.proxy_file)}
    others = {*programs, name, GOLDEN_NAME, PLACEMENT_NAME}
    beside = PurePosixPath(name).parent
    return tuple(
        record.path
        for record in manifest.files
        if record.path not in others
        and not record.path.endswith(".onnx")
        and PurePosixPath(record.path).is_relative_to(beside)
    )


def engine_errors() -> tuple[type[Exception], ...]:
    """Return the classes onnxruntime raises."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    # The engine's own classes have no common base but Exception, and differ from version to version.
    own = [each for each in vars(state).values() if isinstance(each, type) and issubclass(each, Exception)]
    return (RuntimeError, ValueError, *own)


def engine_message(error: Exception, file: Path, copy: Path | None = None) -> str:
    """Return an engine's message on one line, without codes and without the path of this machine or of its copy."""
    text = (
        " ".join(message_lines(error))
        .replace(str(copy or file), file.name)
        .replace(str(file), file.name)
        .replace(f"{file.parent}/", "")
    )
    return _CODE.sub("", text.rpartition("[ONNXRuntimeError] : ")[2])[:300]


def _effective(onnxruntime: Any, loaded: Any, settings: Settings, precision: str) -> EffectiveSettings:
    providers = tuple(loaded.get_providers())
    require(settings, "execution provider", PROVIDER, providers[0] if providers else "none")
    return EffectiveSettings(
        engine="onnxruntime",
        engine_version=onnxruntime.__version__,
        threads=wanted_threads(settings),
        execution_precision=precision,
        providers=providers,
        spinning=settings.spinning,
        affinity=host.affinity(),
        cpu_quota=host.cpu_quota(),
        read_back=("providers",),
    )


class _Lane(NamedTuple):
    """Inputs and outputs of one set of shapes, bound once to memory of ours.

    Attributes:
        binding: onnxruntime's binding of that memory.
        inputs: Name and memory of every input.
        outputs: Memory of every output, by name.
    """

    binding: Any
    inputs: tuple[tuple[str, Array], ...]
    outputs: dict[str, Array]


class OnnxruntimeSession:
    """One stage in onnxruntime.

    The first inference of a set of shapes is a plain ``run``; what it returns becomes the memory that later ones
    write to. Binding it costs 1.5 to 2 µs less per inference than ``run``, with the copy of a small input
    included (measured on networks of 4 to 800 µs).
    """

    def __init__(self, stage: StageSpec, loaded: Any, effective: EffectiveSettings, *, bindable: bool = True) -> None:
        self.stage = stage
        self.effective = effective
        self._loaded: Any = loaded
        self._names = tuple(port.name for port in stage.takes)
        self._engine_names = {port.name: port.engine_name for port in stage.takes}
        self._output_names = tuple(port.engine_name for port in stage.adds)
        self._bindable = bindable and _shapes_follow_inputs(stage)
        self._lanes: dict[Shapes, _Lane] = {}
        self._errors = engine_errors()

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """Run one inference on engine tensors, by pool name; the arrays returned are valid until the next call.

        Raises:
            InputError: an array is missing, or its shape or dtype is not that of ``stage.takes``.
            TargetError: the session is closed, or the engine failed.
        """
        try:
            shapes = tuple([feeds[name].shape for name in self._names])
            lane = self._lanes.get(shapes)
            if lane is None:
                return self._run_first(shapes, feeds)
            for name, memory in lane.inputs:
                array = feeds[name]
                if array is not memory:
                    np.copyto(memory, array, "no")
            self._loaded.run_with_iobinding(lane.binding)
        except (KeyError, TypeError, AttributeError) as error:
            raise self._explained(error, feeds) from error
        except self._errors as error:
            raise self._explained(error, feeds) from error
        return dict(lane.outputs)

    def adopt(self, feeds: Feeds) -> None:
        """Bind the memory of these arrays, see `ipj_edge.protocols.Adopting`."""
        shapes = tuple([feeds[name].shape for name in self._names])
        lane = self._lanes.get(shapes)
        if lane is not None:
            self._bind(shapes, feeds, lane.outputs, adopted=feeds)

    def clone(self) -> OnnxruntimeSession:
        """Return a session with memory of its own over the same loaded model, which runs in several threads.

        Raises:
            TargetError: the session is closed.
        """
        return OnnxruntimeSession(self.stage, self._opened(), self.effective, bindable=self._bindable)

    def close(self) -> None:
        """Release the engine's memory. Calling twice is allowed."""
        self._loaded = None
        self._lanes.clear()

    def _opened(self) -> Any:
        if self._loaded is None:
            raise TargetError("this session is closed; load the bundle again")
        return self._loaded

    def _run_first(self, shapes: Shapes, feeds: Feeds) -> dict[str, Array]:
        loaded = self._opened()
        check_feeds(self.stage, feeds)
        given = {self._engine_names[name]: np.asarray(feeds[name]) for name in self._names}
        results = [np.asarray(value) for value in loaded.run(self._output_names, given)]
        outputs = {port.name: value for port, value in zip(self.stage.adds, results, strict=True)}
        if self._bindable and all(value.dtype != object for value in results):
            self._bind(shapes, feeds, outputs)
        return outputs

    def _bind(self, shapes: Shapes, feeds: Feeds, outputs: dict[str, Array], adopted: Feeds | None = None) -> None:
        binding = self._loaded.io_binding()
        inputs = tuple(
            (name, np.empty(shape, feeds[name].dtype) if adopted is None else adopted[name])
            for name, shape in zip(self._names, shapes, strict=True)
        )
        for name, memory in inputs:
            _bind(binding.bind_input, self._engine_names[name], memory)
        memories = {name: np.empty_like(value) if adopted is None else value for name, value in outputs.items()}
        for engine_name, memory in zip(self._output_names, memories.values(), strict=True):
            _bind(binding.bind_output, engine_name, memory)
        if len(self._lanes) >= _MAX_LANES:
            del self._lanes[next(iter(self._lanes))]
        self._lanes[shapes] = _Lane(binding, inputs, memories)

    def _explained(self, error: Exception, feeds: Feeds) -> IpjEdgeError:
        self._opened()
        check_feeds(self.stage, feeds)
        return TargetError(f"onnxruntime failed on '{self.stage.name}': {engine_message(error, Path(self.stage.file))}")


def _bind(bind: Any, name: str, memory: Array) -> None:
    bind(name, "cpu", 0, memory.dtype, memory.shape, memory.ctypes.data)


def _shapes_follow_inputs(stage: StageSpec) -> bool:
    """Say whether the shapes of the outputs are known from those of the inputs alone."""
    known = {size for port in stage.takes for size in port.shape if isinstance(size, str)}
    return all(isinstance(size, int) or size in known for port in stage.adds for size in port.shape)


_: type[Target] = OnnxruntimeCpu
