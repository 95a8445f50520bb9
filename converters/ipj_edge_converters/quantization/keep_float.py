"""Which operators a user wants kept in floating point: glob patterns against the names that `inspect` lists."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from ipj_edge.errors import ConfigError

_SHOWN = 40


class NamedOperator(NamedTuple):
    """One operator of a float model: its type and its name in the converter's own graph."""

    kind: str
    name: str


def matching(patterns: Sequence[str], operators: Sequence[NamedOperator]) -> tuple[NamedOperator, ...]:
    """Return the operators that a pattern matches by name, by type, or by both as `inspect` lists them.

    Engines list an operator as ``Conv name``, ``CONV_2D:name`` or ``name``, and give a fused one another type; so
    the part of a pattern behind a type is tried as a name too.

    Raises:
        ConfigError: a pattern matches none; lists what there is.
    """
    for pattern in patterns:
        if not any(_matches(pattern, operator) for operator in operators):
            names = [f"{operator.kind} {operator.name}".strip() for operator in operators]
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            raise ConfigError(
                f"--keep-float '{pattern}' matches no operator; there are: {', '.join(names[:_SHOWN])}{more}"
            )
    return tuple(each for each in operators if any(_matches(pattern, each) for pattern in patterns))


def _matches(pattern: str, operator: NamedOperator) -> bool:
    kind, name = operator
    if any(fnmatchcase(text, pattern) for text in (name, kind, f"{kind} {name}", f"{kind}:{name}")):
        return True
    return any(mark in pattern and fnmatchcase(name, pattern.partition(mark)[2]) for mark in (" ", ":"))
