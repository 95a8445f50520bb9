"""Which plugins do a conversion: the opener of the source, and one converter per target."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ipj_edge.errors import MissingDependencyError, SourceError, TargetUnavailableError, UnsupportedError
from ipj_edge.plugins import CONVERTERS, SOURCES, load_converter, load_source_opener, load_target, names
from ipj_edge.protocols import Converter, Source, SourceOpener, Target
from ipj_edge.values import Precision

Plugin = TypeVar("Plugin")


def choose_opener(location: str) -> SourceOpener:
    """Return the source plugin that recognises a location.

    Raises:
        SourceError: none does; says which forms are known.
    """
    for opener in _installed(SOURCES, load_source_opener):
        if opener.accepts(location):
            return opener
    hint = "" if ":" in location or Path(location).exists() else " (no such file)"
    raise SourceError(
        f"cannot tell what '{location}' is{hint}: expected file.py:callable, package.module:callable, "
        "a .pt2 (torch.export), an .onnx or a .tflite file"
    )


def choose_precisions(source: Source, target: Target, wanted: tuple[Precision, ...]) -> tuple[Precision, ...]:
    """Return the precisions to make for a target: those wanted, else the source's own.

    Raises:
        TargetUnavailableError: the target does not run one of them.
    """
    precisions = wanted or (source.precision,)
    for precision in precisions:
        if precision not in target.precisions:
            own = "" if wanted else f"; the source is {source.precision}, say --precision to have another"
            raise TargetUnavailableError(
                f"'{target.name}' does not run {precision}; it runs {', '.join(target.precisions)}{own}"
            )
    return precisions


def choose_converter(source: Source, target: str, precision: Precision) -> Converter:
    """Return a converter from one of the source's forms to a target.

    Raises:
        UnsupportedError: there is none.
    """
    for converter in _installed(CONVERTERS, load_converter):
        if target in converter.targets and precision in converter.precisions and converter.form in source.forms:
            return converter
    raise UnsupportedError(
        f"no converter makes {precision} files for '{target}' from a source of kind '{source.kind}'; "
        f"installed: {', '.join(names(CONVERTERS)) or 'none'}"
    )


def _installed(group: str, load: Callable[[str], Plugin]) -> Iterator[Plugin]:
    """Yield the plugins of a group; one whose packages are missing cannot be the one looked for."""
    for name in names(group):
        with suppress(MissingDependencyError):
            yield load(name)


def check_target(name: str) -> Target:
    """Return a target whose engine works here.

    Raises:
        PluginNotFoundError: no such target.
        TargetUnavailableError: its engine does not work here; says what to do.
    """
    target = load_target(name)
    found = target.availability()
    if not found.available:
        fix = f": {found.fix}" if found.fix else ""
        raise TargetUnavailableError(f"'{name}' cannot be used here: {found.reason}{fix}")
    return target
