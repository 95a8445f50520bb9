"""Plugins by entry point: list names without importing anything, load one on demand."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ipj_edge.errors import MissingDependencyError, PluginError, PluginNotFoundError, typed_line
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

_log = logging.getLogger(__name__)


class _Kind(NamedTuple):
    """What the plugins of a group are called, and what they have to have."""

    word: str
    contract: type


_KINDS = {
    SOURCES: _Kind("source", SourceOpener),
    CONVERTERS: _Kind("converter", Converter),
    TARGETS: _Kind("target", Target),
    POWER_PROBES: _Kind("power probe", PowerProbe),
    RECIPE_RUNNERS: _Kind("recipe runner", RecipeRunner),
    EXIT_RULES: _Kind("exit rule", ExitRule),
    INSPECTORS: _Kind("inspector", FileInspector),
}
_OPENVINO_TELEMETRY = "openvino_telemetry"
_ORT_DISABLE_TELEMETRY = "ORT_DISABLE_TELEMETRY"
_ABSENT = object()


def _entries(group: str) -> dict[str, list[EntryPoint]]:
    """Return the entry points of a group by name, in order; more than one where two packages claim a name."""
    from importlib.metadata import entry_points

    found: dict[str, list[EntryPoint]] = {}
    for entry in sorted(entry_points(group=group), key=lambda entry: entry.name):
        same = found.setdefault(entry.name, [])
        if all(entry.value != other.value for other in same):
            same.append(entry)
    return found


def names(group: str) -> tuple[str, ...]:
    """List the plugins of a group by name; imports none of them."""
    return tuple(_entries(group))


def load(group: str, name: str) -> Any:
    """Import one plugin, make it, and check that it has what its group promises.

    Raises:
        PluginNotFoundError: no plugin of that name; lists the installed ones.
        MissingDependencyError: the plugin needs a package that is not installed.
        PluginError: the plugin itself is faulty, or two packages bring one of that name; names the packages.
    """
    entries, kind = _entries(group), _KINDS[group]
    if name not in entries:
        raise PluginNotFoundError(kind.word, name, tuple(entries))
    entry, *others = entries[name]
    if others:
        packages = ", ".join(_package(each) for each in (entry, *others))
        raise PluginError(f"{kind.word} '{name}' is brought by {packages}: keep one and uninstall the others")
    try:
        plugin = entry.load()()
        _check_contract(plugin, kind.contract)
    except ModuleNotFoundError as error:
        # A module missing inside the plugin's own package is a bug of that package, not a missing extra.
        if error.name is None or error.name.split(".")[0] == entry.module.split(".")[0]:
            raise _faulty(kind, entry, error) from error
        # An extra of ours would not bring what an outsider's package lacks.
        package = "" if _is_ours(entry) else _package(entry)
        raise MissingDependencyError(name, error.name, package) from error
    except Exception as error:  # whatever an outsider's module does when it is imported
        raise _faulty(kind, entry, error) from error
    return plugin


def load_usable(group: str) -> Iterator[Any]:
    """Load the plugins of a group one by one; a faulty one is logged and passed over: the others work without it.

    One whose packages are not installed is passed over without a word, as nobody asked for it.
    """
    for name in names(group):
        try:
            yield load(group, name)
        except MissingDependencyError:
            continue
        except PluginError as error:
            _log.warning("%s", error)


def _check_contract(plugin: object, contract: type) -> None:
    """Refuse a plugin that lacks an attribute or a method of its protocol, before anyone trips over it.

    Raises:
        AttributeError: names what is missing.
    """
    methods = {name for name, value in vars(contract).items() if callable(value) and not name.startswith("_")}
    missing = sorted(name for name in {*contract.__annotations__, *methods} if not hasattr(plugin, name))
    if missing:
        raise AttributeError(f"it lacks {', '.join(missing)}")


def _faulty(kind: _Kind, entry: EntryPoint, error: Exception) -> PluginError:
    return PluginError(
        f"{kind.word} '{entry.name}' of {_package(entry)} cannot be used: {entry.value}: "
        f"{typed_line(error)}; update or uninstall it"
    )


def _is_ours(entry: EntryPoint) -> bool:
    return entry.dist is None or entry.dist.name == "ipj-edge"


def _package(entry: EntryPoint) -> str:
    return "an unknown package" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


def load_target(name: str) -> Target:
    """Load a target plugin by name; see `load`."""
    return cast(Target, load(TARGETS, name))


def load_source_opener(name: str) -> SourceOpener:
    """Load a source plugin by name; see `load`."""
    return cast(SourceOpener, load(SOURCES, name))


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
