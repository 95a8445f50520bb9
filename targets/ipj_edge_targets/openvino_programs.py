"""Compiling one OpenVINO file for the CPU, and reading back how it will run."""

from __future__ import annotations

import threading
from pathlib import PurePosixPath
from typing import Any, NamedTuple, cast

from ipj_edge import host
from ipj_edge.bundles.manifest import Bundle, StageSpec
from ipj_edge.bundles.sealed_files import seal_file
from ipj_edge.errors import BundleError, telling_line
from ipj_edge.plugins import needs
from ipj_edge.protocols import Array
from ipj_edge.values import EffectiveSettings, Port, Settings
from ipj_edge_targets.fallback import require, wanted_threads

# Lines of an openvino message that do not say what is wrong: C++ locations.
NOISE = ("Exception from ", "Check '")

_PRODUCTS = {"Convolution", "Deconvolution", "FullyConnected", "MatMul", "RNNCell", "RNNSeq"}


def import_openvino() -> Any:
    """Import openvino.

    Raises:
        MissingDependencyError: it is not installed.
    """
    with needs("openvino-cpu"):
        import openvino
    return openvino


class CompileRequest(NamedTuple):
    """What every stage of a bundle is compiled with.

    Attributes:
        openvino: The engine's module.
        core: Its ``Core``.
        batch_names: Names of the sizes that count samples.
        precision: Execution precision to hold the engine to: ``f32``, ``bf16`` or ``int8``.
        settings: What the caller asked for.
    """

    openvino: Any
    core: Any
    batch_names: frozenset[str]
    precision: str
    settings: Settings


class CompiledForms:
    """The compiled forms of one stage, shared by a session and its clones.

    Batch 1, the usual case on a device, gets a program of fixed shape: it runs 5 to 25 % faster than one of
    dynamic shape (measured on networks of 15 µs to 800 µs), and going back to it after another size is free.
    All other sizes share one of dynamic shape, compiled when first needed.

    Attributes:
        effective: How the stage runs.
    """

    def __init__(self, request: CompileRequest, bundle: Bundle, stage: StageSpec) -> None:
        self._request = request
        self._bundle = bundle
        self._stage = stage
        self._lock = threading.Lock()
        self._model = self._read()
        self._single_shapes = tuple(
            tuple(size if isinstance(size, int) else 1 for size in port.shape) for port in stage.takes
        )
        self._single = self._compile_single()
        self._any_shape = self._compile(self._model) if self._single is None else None
        self.effective = self._checked(self._any_shape if self._single is None else self._single)

    def fitting(self, shapes: tuple[tuple[int, ...], ...]) -> Any:
        """Return the compiled program for inputs of these shapes, in the order of ``stage.takes``."""
        if self._single is not None and shapes == self._single_shapes:
            return self._single
        with self._lock:
            if self._any_shape is None:
                self._any_shape = self._compile(self._model)
                self._checked(self._any_shape)
            return self._any_shape

    def has_fixed_shape(self, shapes: tuple[tuple[int, ...], ...]) -> bool:
        """Say whether the program for inputs of these shapes has a fixed one, so that its outputs never move."""
        return self._single is not None and shapes == self._single_shapes

    def adopt(self, request: Any, port: Port, array: Array) -> None:
        """Have a request read an input from an array where it lies."""
        engine_port = request.get_compiled_model().input(port.engine_name)
        request.set_tensor(engine_port, self._request.openvino.Tensor(array, shared_memory=True))

    def bind(self, request: Any, port: Port, shape: tuple[int, ...]) -> Array:
        """Give a request memory for one input, in the engine's own alignment, and return it as an array."""
        engine_port = request.get_compiled_model().input(port.engine_name)
        tensor = self._request.openvino.Tensor(engine_port.get_element_type(), list(shape))
        request.set_tensor(engine_port, tensor)
        return cast(Array, tensor.data)

    def _read(self) -> Any:
        """Read sealed copies of the program and its weights; the engine's mappings keep them, no file stays open."""
        weights = str(PurePosixPath(self._stage.file).with_suffix(".bin"))
        recorded = {record.path for record in self._bundle.manifest.files}
        names = (self._stage.file, *((weights,) if weights in recorded else ()))
        copies = [seal_file(self._bundle, name) for name in names]
        try:
            return self._request.core.read_model(*(copy.path for copy in copies))
        except RuntimeError as error:
            raise BundleError(f"openvino cannot read '{self._stage.file}': {telling_line(error, NOISE)}") from error
        finally:
            for copy in copies:
                copy.close()

    def _compile_single(self) -> Any:
        """Compile for one sample; None where that changes nothing or other sizes are dynamic too."""
        free = [size for port in self._stage.takes for size in port.shape if isinstance(size, str)]
        if not free or not set(free) <= self._request.batch_names:
            return None
        model = self._model.clone()
        names = [port.engine_name for port in self._stage.takes]
        try:
            model.reshape(dict(zip(names, (list(shape) for shape in self._single_shapes), strict=True)))
        except RuntimeError:
            # A model whose own arithmetic on shapes resists a fixed batch still runs with a dynamic one.
            return None
        return self._compile(model)

    def _compile(self, model: Any) -> Any:
        hint = "f32" if self._request.precision == "int8" else self._request.precision
        config = {
            "INFERENCE_PRECISION_HINT": hint,
            "INFERENCE_NUM_THREADS": wanted_threads(self._request.settings),
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
        }
        try:
            return self._request.core.compile_model(model, "CPU", config)
        except RuntimeError as error:
            raise BundleError(f"openvino cannot load '{self._stage.file}': {telling_line(error, NOISE)}") from error

    def _checked(self, compiled: Any) -> EffectiveSettings:
        settings = self._request.settings
        threads = int(compiled.get_property("INFERENCE_NUM_THREADS"))
        precision, confirmed = _execution_precision(compiled, self._request.precision)
        require(settings, "threads", wanted_threads(settings), threads)
        require(settings, "execution precision", self._request.precision, precision)
        return EffectiveSettings(
            engine="openvino",
            engine_version=self._request.openvino.get_version(),
            threads=threads,
            execution_precision=precision,
            providers=tuple(str(device) for device in compiled.get_property("EXECUTION_DEVICES")),
            affinity=host.affinity(),
            cpu_quota=host.cpu_quota(),
            read_back=("threads", "providers", *(("execution_precision",) if confirmed else ())),
        )


def _execution_precision(compiled: Any, wanted: str) -> tuple[str, bool]:
    """Return the precision the engine computes in, and whether the engine says so.

    For int8 the kernels it chose are asked. Where it fused everything into generated code (``Subgraph``), which
    carries no precision of its own, there is nothing to ask, and what the file says is returned unconfirmed.
    """
    hint = str(compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name())
    if wanted != "int8":
        return hint, True
    facts = [operator.get_rt_info() for operator in compiled.get_runtime_model().get_ops()]
    kernels = {each["runtimePrecision"].value for each in facts if each["layerType"].value in _PRODUCTS}
    if not kernels:
        return wanted, False
    return (wanted if kernels & {"i8", "u8"} else hint), True
