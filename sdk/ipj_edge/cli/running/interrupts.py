"""Ctrl-C and SIGTERM: both end a command in order, each with an exit code of its own."""

from __future__ import annotations

import signal

import click


class Terminated(KeyboardInterrupt):
    """SIGTERM, as `timeout` and continuous integration send it: handled as Ctrl-C is, so that nothing stays behind."""


def exit_on_sigterm() -> None:
    """Have SIGTERM raise `Terminated`, unless whoever started us decided otherwise."""
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)


def exit_code(error: KeyboardInterrupt | click.Abort) -> int:
    """Return 143 after SIGTERM and 130 after Ctrl-C; click makes its own Abort of what interrupts a command."""
    terminated = isinstance(error, Terminated) or isinstance(error.__cause__, Terminated)
    return 128 + (signal.SIGTERM if terminated else signal.SIGINT)


def _terminate(*_: object) -> None:
    raise Terminated
