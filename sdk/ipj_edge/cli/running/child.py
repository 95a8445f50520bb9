"""Run a command as a child, and end it when this process is told to stop."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from ipj_edge import child as processes
from ipj_edge.errors import ConfigError

# A child in the foreground gets Ctrl-C itself; it has this long to act on it before it is told again.
_GRACE_S = 2.0


class _Told(Exception):
    """This process was told to end by a signal other than Ctrl-C's."""


def run(command: Sequence[str]) -> int:
    """Run a command to its end and return its exit code as a shell would give it: 128 + n after signal n.

    On Ctrl-C, or SIGTERM to this process, the child is ended too, with all that it started; the result is then 130,
    or 143.

    Raises:
        ConfigError: the command cannot be started.
    """
    with _sigterm_raises():
        try:
            child = subprocess.Popen(command)
        except OSError as error:
            raise ConfigError(f"cannot run '{command[0]}': {error.strerror}") from error
        try:
            code = child.wait()
        except KeyboardInterrupt:
            _end(child)
            return 128 + signal.SIGINT
        except _Told:
            _end(child, told=True)
            return 128 + signal.SIGTERM
    return 128 - code if code < 0 else code


def _end(child: subprocess.Popen[bytes], *, told: bool = False) -> None:
    """End the child, then what it left running of all that it had started."""
    started = processes.started_by(child.pid)
    if told:
        child.terminate()
    _end_first(child)
    processes.end(started, _GRACE_S)


def _end_first(child: subprocess.Popen[bytes]) -> None:
    for end in (child.terminate, child.kill):
        try:
            child.wait(_GRACE_S)
            return
        except subprocess.TimeoutExpired:
            end()
        except KeyboardInterrupt:  # a second Ctrl-C: wait no longer
            end()
    child.wait()


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def tell(number: int, frame: FrameType | None) -> None:
        raise _Told

    before = signal.signal(signal.SIGTERM, tell)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
