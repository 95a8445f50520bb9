"""Which plugins do a conversion: the opener of the source, and one converter per target."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

from ipj_edge.errors import SourceError, TargetUnavailableError, UnsupportedError
from ipj_edge.plugins import CONVERTERS, SOURCES, load_target, load_usable, names
from ipj_edge.protocols import (
    Converter,
    HasProxy,
    Source,
    SourceOpener,
    Target,
)
from ipj_edge.values import Precision


def choose_opener(location: str) -> SourceOpener:
    """Return the source plugin that recognises a location.

    Raises:
        SourceError: none does; says which forms are known.
    """
    for opener in cast(Iterator[SourceOpener], load_usable(SOURCES)):
        if opener.accepts(location):
            return opener
    hint = "" if ":" in location or Path(location).exists() else " (no such file)"
    raise SourceError(
        f"cannot tell what '{location}' is{hint}: expected file.py:callable, package.module:callable, "
        "a .pt2 (torch.export), an .onnx or a .tflite file"
    )


def choose_precisions(source: Source, target: Target, wanted: tuple[Precision, ...]) -> tuple[Precision, ...]:
    """Return the precisions to make for a target: those wanted, else its only one, else the source's own.

    Raises:
        TargetUnavailableError: the target does not run one of them.
    """
    only = target.precisions if len(target.precisions) == 1 else ()
    precisions = wanted or only or (source.precision,)
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
    for converter in cast(Iterator[Converter], load_usable(CONVERTERS)):
        if target in converter.targets and precision in converter.precisions and converter.form in source.forms:
            return converter
    raise UnsupportedError(
        f"no converter makes {precision} files for '{target}' from a source of kind '{source.kind}'; "
        f"installed: {', '.join(names(CONVERTERS)) or 'none'}"
    )


def check_target(name: str) -> Target:
    """Return a target whose bundles can be proven here, by its own engine or by its proxy.

    Raises:
        PluginNotFoundError: no such target.
        TargetUnavailableError: neither works here; says what to do.
    """
    prover = load_target(proving_target(name))
    found = prover.availability()
    if not found.available:
        fix = f": {found.fix}" if found.fix else ""
        raise TargetUnavailableError(f"'{prover.name}' cannot be used here: {found.reason}{fix}")
    return load_target(name)


def proving_target(name: str) -> str:
    """Return the target that proves bundles for a target here: itself, or its proxy where it cannot run.

    Raises:
        PluginNotFoundError: no such target.
    """
    target = load_target(name)
    proxy = target.proxy if isinstance(target, HasProxy) else None
    return name if proxy is None or target.availability().available else proxy
