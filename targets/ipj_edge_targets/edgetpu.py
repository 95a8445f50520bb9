"""Target ``edgetpu``: compiled .tflite files on a Coral Edge TPU, by the TFLite engine and libedgetpu's delegate."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import msgspec
import numpy as np

from ipj_edge.bundles.manifest import Bundle
from ipj_edge.bundles.sealed_files import seal_file
from ipj_edge.errors import MissingDependencyError, TargetUnavailableError, first_line
from ipj_edge.protocols import HasProxy, Session, Target
from ipj_edge.values import Availability, Boundary, Precision, Settings
from ipj_edge_targets.edgetpu_device import LIBRARY, why_not_here
from ipj_edge_targets.fallback import wanted_threads
from ipj_edge_targets.tflite_cpu import TfliteSession
from ipj_edge_targets.tflite_engine import (
    Engine,
    find_engine,
    installed_versions,
    numpy_conflict,
    open_interpreter,
)

_NAME = "edgetpu"
_INSTALL = f"pip install 'ipj-edge[{_NAME}]'"
_PROVIDER = "EdgeTPU"


class Edgetpu:
    """Runs full-int8 files on an Edge TPU. Bundles are proven by `tflite-cpu` where there is none."""

    name = _NAME
    engine = "ai-edge-litert"
    precisions: tuple[Precision, ...] = ("int8",)
    # The host's own sensors do not see what a stick or a module on the bus draws.
    boundaries: tuple[Boundary, ...] = ("board", "wall")
    proxy: str | None = "tflite-cpu"
    checks_files = True

    def availability(self) -> Availability:
        """Say whether there are an engine, libedgetpu and an Edge TPU; loads no model."""
        engine = find_engine(installed_versions())
        if engine is None:
            return Availability(available=False, reason="ai-edge-litert is not installed", fix=_INSTALL)
        conflict = numpy_conflict(engine, np.__version__)
        reason, fix = (conflict, _INSTALL) if conflict else why_not_here()
        if reason:
            return Availability(available=False, reason=reason, fix=fix, version=engine.version)
        return Availability(available=True, reason=f"{engine.distribution} with {LIBRARY}", version=engine.version)

    def open(self, bundle: Bundle, settings: Settings) -> tuple[Session, ...]:
        """Load every stage of a bundle. Operators that were not mapped run on the host, as its placement says.

        Raises:
            MissingDependencyError: no engine is installed.
            TargetUnavailableError: no libedgetpu or no Edge TPU, or the bundle was made without the compiler.
            BundleError: the engine refuses a file, or the file is not what the manifest says.
            ConfigError: fewer than one thread.
        """
        engine = find_engine(installed_versions())
        if engine is None:
            raise MissingDependencyError(_NAME, "ai_edge_litert")
        found = self.availability()
        if not found.available:
            raise TargetUnavailableError(f"'{_NAME}' cannot be used here: {found.reason}: {found.fix}")
        _check_compiled(bundle)
        threads = wanted_threads(settings)
        keeps_resources = any(tensor.kind == "resource" for tensor in bundle.manifest.state)
        return tuple(
            EdgetpuSession(
                seal_file(bundle, stage.file), stage, engine=engine, threads=threads, keeps_resources=keeps_resources
            )
            for stage in bundle.manifest.stages
        )


class EdgetpuSession(TfliteSession):
    """One stage in one interpreter with a delegate of its own.

    What the Edge TPU does not take the engine refuses: a compiled file's operator has no other kernel.
    """

    def _open(self) -> Any:
        return open_interpreter(self._copy, self._engine, threads=self._threads, delegate=_delegate(self._engine))

    def _bind(self, interpreter: Any) -> None:
        super()._bind(interpreter)
        others = tuple(name for name in self.effective.providers if name != _PROVIDER)
        self.effective = msgspec.structs.replace(
            self.effective, execution_precision="int8", providers=(_PROVIDER, *others)
        )


def _check_compiled(bundle: Bundle) -> None:
    for stage in bundle.manifest.stages:
        if stage.proxy_file is None:
            raise TargetUnavailableError(
                f"bundle '{bundle.manifest.name}' was made without edgetpu_compiler, so all of it would run on the "
                "host: convert the model again on a machine that has the compiler"
            )


def _delegate(engine: Engine) -> Any:
    try:
        return import_module(engine.module).load_delegate(LIBRARY)
    except (ValueError, OSError) as error:
        raise TargetUnavailableError(
            f"{LIBRARY} cannot use the Edge TPU: {first_line(error)}; is another program using it, and may this user "
            "(group plugdev)?"
        ) from error


_: type[Target] = Edgetpu
_proxy: type[HasProxy] = Edgetpu
