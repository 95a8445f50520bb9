"""Target ``onnxruntime-gpu``: onnxruntime on an NVIDIA GPU, by its CUDA or its TensorRT provider.

What `get_available_providers` lists is what the wheel was compiled with, not what loads. Left alone, onnxruntime
answers a provider that cannot load, and operators that no provider takes, with the CPU and a line in its log. So the
fall-back is switched off in the session, and the providers it opened with are read back from it.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

from ipj_edge import host
from ipj_edge.bundles.manifest import Bundle, ProviderSpec, StageSpec
from ipj_edge.errors import BundleError, MissingDependencyError, TargetUnavailableError
from ipj_edge.plugins import needs
from ipj_edge.protocols import HasProxy, Session, Target
from ipj_edge.values import Availability, Boundary, EffectiveSettings, Precision, Settings
from ipj_edge_targets.fallback import require, wanted_threads
from ipj_edge_targets.nvidia_driver import why_no_gpu
from ipj_edge_targets.onnxruntime_cpu import OnnxruntimeSession, engine_message, load, session_options

_NAME = "onnxruntime-gpu"
_CUDA, _TENSORRT = "CUDAExecutionProvider", "TensorrtExecutionProvider"
_DEFAULT = (ProviderSpec(name=_CUDA, options={"use_tf32": "0"}),)
_EXECUTION_PRECISION = {"fp32": "f32", "fp16": "f16", "int8": "int8"}
_NO_CPU = "session.disable_cpu_ep_fallback"
_LOG_NOTHING, _LOG_WARNINGS = 4, 2
_FIX = f"pip uninstall -y onnxruntime onnxruntime-gpu && pip install 'ipj-edge[{_NAME}]'"


class OnnxruntimeGpu:
    """Runs ONNX files on an NVIDIA GPU."""

    name = _NAME
    engine = "onnxruntime-gpu"
    precisions: tuple[Precision, ...] = ("fp32", "fp16", "int8")
    boundaries: tuple[Boundary, ...] = ("gpu", "module")
    checks_files = True
    proxy: str | None = "onnxruntime-cpu"

    def availability(self) -> Availability:
        """Say whether this onnxruntime has a GPU provider and whether there is a GPU; loads no model."""
        try:
            onnxruntime = _import_onnxruntime()
        except MissingDependencyError as error:
            return Availability(available=False, reason=str(error), fix=f"pip install 'ipj-edge[{self.name}]'")
        found = onnxruntime.__version__
        if _CUDA not in onnxruntime.get_available_providers():
            reason = f"the onnxruntime {found} installed here was built for the CPU alone"
            return Availability(available=False, reason=reason, fix=_FIX, version=found)
        reason = why_no_gpu()
        return Availability(available=not reason, reason=reason, version=found)

    def open(self, bundle: Bundle, settings: Settings) -> tuple[Session, ...]:
        """Load every stage of a bundle.

        Raises:
            MissingDependencyError: onnxruntime is not installed.
            TargetUnavailableError: there is no GPU, a provider does not load, or operators would run on the CPU.
            BundleError: onnxruntime refuses a file.
        """
        precision = bundle.manifest.precision
        if precision not in self.precisions:
            raise TargetUnavailableError(f"'{self.name}' runs {', '.join(self.precisions)}, not {precision}")
        found = self.availability()
        if not found.available and not settings.allow_fallback:
            fix = f": {found.fix}" if found.fix else ""
            raise TargetUnavailableError(f"'{self.name}' cannot be used here: {found.reason}{fix}")
        onnxruntime = _import_onnxruntime()
        wanted = bundle.manifest.requires.providers or _DEFAULT
        return tuple(_open_stage(onnxruntime, bundle, stage, wanted, settings) for stage in bundle.manifest.stages)


def _import_onnxruntime() -> Any:
    with needs(_NAME):
        import onnxruntime
    return onnxruntime


def _open_stage(
    onnxruntime: Any, bundle: Bundle, stage: StageSpec, wanted: tuple[ProviderSpec, ...], settings: Settings
) -> OnnxruntimeSession:
    options = session_options(onnxruntime, settings)
    options.log_severity_level = _LOG_NOTHING
    if not settings.allow_fallback:
        options.add_session_config_entry(_NO_CPU, "1")
    known = set(onnxruntime.get_available_providers())
    providers = [(each.name, dict(each.options)) for each in wanted if each.name in known]
    # Without the CPU in the list onnxruntime would refuse, not fall back, where that is allowed.
    providers += [("CPUExecutionProvider", {})] if settings.allow_fallback else []
    with _quiet(onnxruntime):
        loaded = _load(onnxruntime, bundle, stage.file, options, providers)
    effective = _effective(onnxruntime, loaded, stage, settings)
    require(settings, "execution provider", wanted[0].name, (*effective.providers, "none")[0])
    # Memory of the CPU may not be bound once and reused here: `bind_input` copies it to the GPU when it is bound,
    # and later inferences would answer for the first input again.
    return OnnxruntimeSession(stage, loaded, effective, bindable=False)


def _load(onnxruntime: Any, bundle: Bundle, name: str, options: Any, providers: list[Any]) -> Any:
    try:
        return load(onnxruntime, bundle, name, options, providers)
    except BundleError as error:
        cause = error.__cause__
        if cause is None or "fallback" not in str(cause).lower():
            raise
        file = bundle.path / name
        why = engine_message(_as_exception(cause), file)
        raise TargetUnavailableError(
            f"part of '{file.name}' would run on the CPU: {why}; check that CUDA, "
            "cuDNN and TensorRT fit this onnxruntime, or allow the fall-back"
        ) from error


def _as_exception(cause: BaseException) -> Exception:
    return cause if isinstance(cause, Exception) else RuntimeError(str(cause))


@contextmanager
def _quiet(onnxruntime: Any) -> Iterator[None]:
    """Find CUDA libraries installed from pip, and keep the engine's log lines about those that are missing.

    What they would say comes back as a refusal, from the session or from its list of providers.
    """
    onnxruntime.set_default_logger_severity(_LOG_NOTHING)
    try:
        with redirect_stdout(io.StringIO()):
            if hasattr(onnxruntime, "preload_dlls"):  # since 1.21
                onnxruntime.preload_dlls()
            yield
    finally:
        onnxruntime.set_default_logger_severity(_LOG_WARNINGS)


def _effective(onnxruntime: Any, loaded: Any, stage: StageSpec, settings: Settings) -> EffectiveSettings:
    providers = tuple(loaded.get_providers())
    return EffectiveSettings(
        engine=OnnxruntimeGpu.engine,
        engine_version=onnxruntime.__version__,
        threads=wanted_threads(settings),
        execution_precision=_precision(stage, providers),
        providers=providers,
        spinning=settings.spinning,
        affinity=host.affinity(),
        cpu_quota=host.cpu_quota(),
        read_back=("providers",),
    )


def _precision(stage: StageSpec, providers: tuple[str, ...]) -> str:
    """Return what the first provider computes a file of this precision in."""
    if stage.precision == "int8" and providers[:1] != (_TENSORRT,):
        return "f32"
    if stage.precision == "fp16" and providers[:1] == ("CPUExecutionProvider",):
        return "f32"
    return _EXECUTION_PRECISION[stage.precision]


_: type[Target] = OnnxruntimeGpu
_proxy: type[HasProxy] = OnnxruntimeGpu
