"""The engines that run .tflite files: which is installed, whether it works here, and how it opens a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from ipj_edge.bundles.sealed_files import SealedFile
from ipj_edge.errors import BundleError, TargetUnavailableError, first_line

INSTALL = "pip install 'ipj-edge[tflite-cpu]'"
# Distribution and module of the engines, best first.
_ENGINES = (("ai-edge-litert", "ai_edge_litert.interpreter"), ("tflite-runtime", "tflite_runtime.interpreter"))
# What the engine says about an operator it has no kernel for.
_NO_KERNEL = re.compile(r"unresolved custom op: ([^\s.]+)|Didn't find op for builtin opcode '(\w+)'")


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """An installed engine: its distribution, its version and the module of its interpreter."""

    distribution: str
    version: str
    module: str


def find_engine(installed: Mapping[str, str]) -> Engine | None:
    """Return the best engine among installed distributions (name to version), or None."""
    for distribution, module in _ENGINES:
        if distribution in installed:
            return Engine(distribution=distribution, version=installed[distribution], module=module)
    return None


def installed_versions() -> dict[str, str]:
    """Return the versions of the engines that are installed; imports none."""
    found = {}
    for distribution, _ in _ENGINES:
        try:
            found[distribution] = version(distribution)
        except PackageNotFoundError:
            continue
    return found


def numpy_conflict(engine: Engine, numpy_version: str) -> str:
    """Return why this engine cannot work with this numpy, or an empty string.

    tflite-runtime 2.14, the last one, was built for numpy 1; with numpy 2 `Interpreter()` ends in a SystemError.
    """
    if engine.distribution != "tflite-runtime" or int(numpy_version.split(".", maxsplit=1)[0]) < 2:
        return ""
    return (
        f"tflite-runtime {engine.version} does not work with numpy {numpy_version} (it needs numpy<2); "
        "install its successor ai-edge-litert"
    )


def open_interpreter(copy: SealedFile, engine: Engine, *, threads: int, delegate: Any = None) -> Any:
    """Return an interpreter ready to run; it maps the file, so that clones share its pages.

    Args:
        copy: The .tflite file.
        engine: The engine to open it with.
        threads: Threads it may use.
        delegate: A loaded delegate that takes operators off the engine's hands; None for the engine's own.

    Raises:
        TargetUnavailableError: the engine cannot be imported.
        BundleError: the engine refuses the file.
    """
    delegates = None if delegate is None else [delegate]
    try:
        interpreter = import_module(engine.module).Interpreter(
            model_path=str(copy.path), num_threads=threads, experimental_delegates=delegates
        )
        interpreter.allocate_tensors()
    except ImportError as error:
        raise TargetUnavailableError(f"{engine.distribution} cannot be imported ({error}): {INSTALL}") from error
    except (ValueError, RuntimeError) as error:
        missing = _NO_KERNEL.search(str(error))
        if missing is None:
            raise BundleError(f"{engine.distribution} refuses '{copy.name}': {first_line(error)}") from error
        raise BundleError(
            f"{engine.distribution} {engine.version} has no kernel for the operator '{missing[1] or missing[2]}' "
            f"of '{copy.name}': convert the model again for this target, or use a newer engine"
        ) from error
    return interpreter
