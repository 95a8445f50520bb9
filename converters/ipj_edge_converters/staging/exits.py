"""What can be told of exits before a model is cut: they are all of its outputs, and answer alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ipj_edge.errors import ConfigError


def check_exits(exits: Sequence[str], outputs: Sequence[str]) -> None:
    """Refuse a single exit, one named twice, exits that are no outputs, and outputs that are no exits.

    Raises:
        ConfigError: names them.
    """
    unknown = [name for name in exits if name not in outputs]
    if unknown:
        raise ConfigError(f"the model has no output {unknown[0]!r} to exit at; it has {', '.join(outputs)}")
    twice = [name for name in exits if exits.count(name) > 1]
    if twice:
        raise ConfigError(f"the exit {twice[0]!r} is named twice")
    if len(exits) < 2:
        raise ConfigError(f"early exit needs at least two exits; the model has {len(exits)}")
    left = [name for name in outputs if name not in exits]
    if left:
        raise ConfigError(
            f"the output {left[0]!r} is no exit, and a sample that leaves early would not have it: "
            "name it as an exit or remove it from the model"
        )


def check_classes(shapes: Mapping[str, Sequence[int | str]]) -> None:
    """Refuse exits that do not answer alike: the same classes, first axis = samples.

    Raises:
        ConfigError: names two exits that differ.
    """
    (first, expected), *others = shapes.items()
    for name, shape in others:
        if tuple(shape[1:]) != tuple(expected[1:]):
            raise ConfigError(
                f"the exits answer differently: {first!r} has shape {list(expected)} and {name!r} {list(shape)}; "
                "every exit must have the same classes"
            )
