"""``--quiet`` and ``--verbose``, which every command takes."""

from __future__ import annotations

import logging
from typing import Literal

import click

Verbosity = Literal["quiet", "normal", "verbose"]

_KEY = "ipj_edge.verbosity"


def with_verbosity(command: click.Command) -> click.Command:
    """Add the two options to a command, and to those of a group, once."""
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            with_verbosity(inner)
        return command
    if not any("--quiet" in param.opts for param in command.params):
        command.params += [
            _flag(("--quiet", "-q"), "quiet", "Print results, warnings and errors only."),
            _flag(("--verbose", "-v"), "verbose", "Say more: log what the library and its engines do."),
        ]
    return command


def verbosity() -> Verbosity:
    """Return how much the running command is to say."""
    context = click.get_current_context(silent=True)
    said: Verbosity = "normal" if context is None else context.find_root().meta.get(_KEY, "normal")
    return said


def _flag(names: tuple[str, str], value: Verbosity, text: str) -> click.Option:
    def choose(ctx: click.Context, _param: click.Parameter, given: bool) -> None:
        if given:
            root = ctx.find_root()
            if root.meta.setdefault(_KEY, value) != value:
                raise click.UsageError("--quiet and --verbose contradict each other", ctx)
            if value == "verbose":
                logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")

    return click.Option(names, is_flag=True, expose_value=False, callback=choose, help=text)
