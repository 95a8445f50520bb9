"""Which options a converter heeds, and at which precisions they mean something. What it would pass over is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from ipj_edge.errors import ConfigError, TargetUnavailableError
from ipj_edge.protocols import ChoosesOperators, ChoosesProviders, Converter, HeedsOptions, MapsOperators, Source
from ipj_edge.values import ConversionOptions, Precision

_DEFAULTS = ConversionOptions()

# A request may name several precisions: these options are for some of them, and the others go without.
_ONLY_AT: dict[str, tuple[Precision, ...]] = {
    "scheme": ("int8",),
    "keep_float": ("fp16", "bf16", "int8"),
    "half_io": ("fp16",),
    "ranges": ("int8",),
    "stage_precisions": ("int8",),
}
# Options that every converter heeds, or refuses in words of its own.
_FOR_ALL = ("isa", "ranges", "split_at", "stage_precisions")


class _Asked(NamedTuple):
    converter: Converter
    options: ConversionOptions
    source: Source
    precision: Precision


def for_precision(options: ConversionOptions, precision: Precision) -> ConversionOptions:
    """Return the options that mean something at a precision; the others are left at their defaults."""
    dropped = {name: getattr(_DEFAULTS, name) for name, only in _ONLY_AT.items() if precision not in only}
    return msgspec.structs.replace(options, **dropped)


def check_abilities(converter: Converter, options: ConversionOptions, source: Source, precision: Precision) -> None:
    """Refuse wishes that a converter would pass over without a word.

    Raises:
        TargetUnavailableError: it knows no such scheme or provider, or does not heed an option at all.
        ConfigError: the source is quantized already.
    """
    asked = _Asked(converter, options, source, precision)
    for name in options.__struct_fields__:
        if name not in _FOR_ALL and getattr(options, name) != getattr(_DEFAULTS, name, None):
            _CHECKS.get(name, _check_heeded(name))(asked)


def _check_scheme(asked: _Asked) -> None:
    if asked.precision != "int8":
        return
    _check_not_quantized(asked.source, "--quantize")
    converter, scheme = asked.converter, asked.options.scheme
    known = converter.schemes if isinstance(converter, ChoosesOperators) else ("static",)
    if scheme not in known:
        raise TargetUnavailableError(
            f"'{converter.name}' has no {scheme} int8 ({', '.join(known)} only): choose another target, "
            "or leave out --quantize"
        )


def _check_keep_float(asked: _Asked) -> None:
    _check_not_quantized(asked.source, "--keep-float")
    if asked.precision != "fp32" and not isinstance(asked.converter, ChoosesOperators):
        raise TargetUnavailableError(f"'{asked.converter.name}' cannot keep single operators in float (--keep-float)")


def _check_not_quantized(source: Source, option: str) -> None:
    if source.precision == "int8":
        raise ConfigError(
            f"{option}: '{source.file}' is quantized already and keeps its own scales; give the float model"
        )


def _check_providers(asked: _Asked) -> None:
    known = _providers(asked.converter)
    strange = [name for name in asked.options.providers if name not in known]
    if strange:
        raise TargetUnavailableError(
            f"'{asked.converter.name}' knows no execution provider {', '.join(strange)}, "
            f"only {', '.join(known) or 'none'}"
        )


def _check_min_mapped(asked: _Asked) -> None:
    if not isinstance(asked.converter, MapsOperators):
        raise TargetUnavailableError(f"'{asked.converter.name}' maps no operators to an accelerator (--min-mapped)")


def _check_half_io(asked: _Asked) -> None:
    if not _providers(asked.converter):
        raise TargetUnavailableError(
            f"'{asked.converter.name}' makes no files with float16 inputs and outputs (--half-io)"
        )


def _providers(converter: Converter) -> tuple[str, ...]:
    return converter.providers if isinstance(converter, ChoosesProviders) else ()


def _check_heeded(name: str) -> Callable[[_Asked], None]:
    """Return the check of an option without one of its own: the converter has to name it."""

    def check(asked: _Asked) -> None:
        converter = asked.converter
        if name not in (converter.heeds if isinstance(converter, HeedsOptions) else ()):
            raise TargetUnavailableError(
                f"'{converter.name}' does not heed --{name.replace('_', '-')}: leave it out, or choose another target"
            )

    return check


_CHECKS: dict[str, Callable[[_Asked], None]] = {
    "scheme": _check_scheme,
    "keep_float": _check_keep_float,
    "providers": _check_providers,
    "min_mapped": _check_min_mapped,
    "half_io": _check_half_io,
}
