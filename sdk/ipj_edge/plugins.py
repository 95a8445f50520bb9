"""Plugins by entry point: list names without importing anything, load one on demand."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from ipj_edge.errors import MissingDependencyError, PluginNotFoundError
from ipj_edge.protocols import Converter, ExitRule, FileInspector, PowerProbe, RecipeRunner, SourceOpener, Target

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

SOURCES = "ipj_edge.sources"
CONVERTERS = "ipj_edge.converters"
TARGETS = "ipj_edge.targets"
POWER_PROBES = "ipj_edge.power_probes"
RECIPE_RUNNERS = "ipj_edge.recipe_runners"
INSPECTORS = "ipj_edge.inspectors"
EXIT_RULES = "ipj_edge.exit_rules"

_KINDS = {
    SOURCES: "source",
    CONVERTERS: "converter",
    TARGETS: "target",
    POWER_PROBES: "power probe",
    RECIPE_RUNNERS: "recipe runner",
    EXIT_RULES: "exit rule",
    INSPECTORS: "inspector",
}
_OPENVINO_TELEMETRY = "openvino_telemetry"
_ORT_DISABLE_TELEMETRY = "ORT_DISABLE_TELEMETRY"
_ABSENT = object()


def _entries(group: str) -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in sorted(entry_points(group=group), key=lambda entry: entry.name)}


def names(group: str) -> tuple[str, ...]:
    """List the plugins of a group by name; imports none of them."""
    return tuple(_entries(group))


def load(group: str, name: str) -> Any:
    """Import one plugin and make it.

    Raises:
        PluginNotFoundError: no plugin of that name; lists the installed ones.
        MissingDependencyError: the plugin needs a package that is not installed.
    """
    entries = _entries(group)
    if name not in entries:
        raise PluginNotFoundError(_KINDS.get(group, group), name, tuple(entries))
    entry = entries[name]
    try:
        plugin = entry.load()
    except ModuleNotFoundError as error:
        # A module missing inside the plugin's own package is a bug of that package, not a missing extra.
        if error.name is None or error.name.split(".")[0] == entry.module.split(".")[0]:
            raise
        raise MissingDependencyError(name, error.name) from error
    return plugin()


def load_target(name: str) -> Target:
    """Load a target plugin by name; see `load`."""
    return cast(Target, load(TARGETS, name))


def load_converter(name: str) -> Converter:
    """Load a converter plugin by name; see `load`."""
    return cast(Converter, load(CONVERTERS, name))


def load_source_opener(name: str) -> SourceOpener:
    """Load a source plugin by name; see `load`."""
    return cast(SourceOpener, load(SOURCES, name))


def load_inspector(name: str) -> FileInspector:
    """Load an inspector of model files by name; see `load`."""
    return cast(FileInspector, load(INSPECTORS, name))


def load_probe(name: str) -> PowerProbe:
    """Load a power probe plugin by name; see `load`."""
    return cast(PowerProbe, load(POWER_PROBES, name))


def load_exit_rule(name: str) -> ExitRule:
    """Load an exit rule plugin by name; see `load`."""
    return cast(ExitRule, load(EXIT_RULES, name))


def load_recipe_runner(name: str) -> RecipeRunner:
    """Load a recipe runner plugin by name; see `load`."""
    return cast(RecipeRunner, load(RECIPE_RUNNERS, name))


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Turn a missing package inside the block into a `MissingDependencyError` that names the extra.

    Engines imported inside the block do not report to their vendors, see `without_telemetry`.
    """
    try:
        with without_telemetry():
            yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0].startswith("ipj_edge"):
            raise
        raise MissingDependencyError(extra, error.name) from error


@contextmanager
def without_telemetry() -> Iterator[None]:
    """Keep engines that are imported inside the block from reporting to their vendors, now and later.

    They decide once, when they are first imported: openvino and nncf fall back to a stub of their own when
    ``openvino_telemetry`` is not to be had, onnxruntime (1.29 and newer) heeds ``ORT_DISABLE_TELEMETRY``. Left
    alone, each writes an identifier to the user's home and sends events. What was set before is put back.
    """
    modules = cast(dict[str, Any], sys.modules)
    kept_module = modules.get(_OPENVINO_TELEMETRY, _ABSENT)
    kept_variable = os.environ.get(_ORT_DISABLE_TELEMETRY)
    modules[_OPENVINO_TELEMETRY] = None  # Python's own mark for "do not import this"
    os.environ[_ORT_DISABLE_TELEMETRY] = "1"
    try:
        yield
    finally:
        if kept_module is _ABSENT:
            modules.pop(_OPENVINO_TELEMETRY, None)
        else:
            modules[_OPENVINO_TELEMETRY] = kept_module
        if kept_variable is None:
            os.environ.pop(_ORT_DISABLE_TELEMETRY, None)
        else:
            os.environ[_ORT_DISABLE_TELEMETRY] = kept_variable
