"""The process between us and a child: ``python -I -S child_keeper.py PARENT DATA_BYTES CPU_S PROGRAM ARGUMENT…``.

It limits the program, and ends the program's whole tree when the program ends, when it is told to by SIGTERM, and
when the process that wanted the child is gone. A process that left its parent or its session cannot leave the keeper:
Linux hands every orphan to the nearest ancestor that asks for them. It imports the standard library alone, so that it
starts in milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import time
from contextlib import suppress

_PR_SET_CHILD_SUBREAPER = 36
_LOOK_S = 0.5  # how soon it is seen that the parent is gone
_PATIENCE_S = 10.0  # a process in the kernel's hands cannot be ended: do not wait for it for ever
_CANNOT_START = 127


def main(parent: int, data_bytes: int, cpu_s: int, words: list[str]) -> int:
    """Run a program within limits and return its exit code, negative for a signal."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    program = os.fork()
    if program == 0:
        _start(data_bytes, cpu_s, words)
    _close_all()
    status = _wait(program, parent)
    end_all(program)
    return -signal.SIGKILL if status is None else os.waitstatus_to_exitcode(status)


def _start(data_bytes: int, cpu_s: int, words: list[str]) -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGCHLD})
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and a program would inherit that
        signal.signal(number, signal.SIG_DFL)
    _limit(resource.RLIMIT_DATA, data_bytes)
    _limit(resource.RLIMIT_CPU, cpu_s)
    _limit(resource.RLIMIT_CORE, 0)
    try:
        os.execvp(words[0], words)
    except OSError as error:
        os.write(2, f"{words[0]} cannot be started: {error.strerror}\n".encode())
    os._exit(_CANNOT_START)


def _limit(which: int, wanted: int) -> None:
    """Lower a soft limit; what the system allows stays the upper bound. A negative one is no limit."""
    _, hard = resource.getrlimit(which)
    if wanted >= 0:
        resource.setrlimit(which, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def _close_all() -> None:
    """Close what was opened for the program alone: a pipe ends with it, and not with us."""
    os.closerange(3, 4096)


def _wait(program: int, parent: int) -> int | None:
    """Wait for the program; None when it has to be ended."""
    while True:
        told = signal.sigtimedwait({signal.SIGTERM, signal.SIGCHLD}, _LOOK_S)
        if (told is not None and told.si_signo == signal.SIGTERM) or os.getppid() != parent:
            return None
        ended, status = os.waitpid(program, os.WNOHANG)
        if ended:
            return status


def end_all(program: int) -> None:
    """Kill every process below this one, until none is left."""
    until = time.monotonic() + _PATIENCE_S
    with suppress(ChildProcessError):
        while time.monotonic() < until:
            for pid in below(os.getpid()):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            time.sleep(0.002)


def below(top: int) -> list[int]:
    """Return the processes below one, in no order."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    found, known = [top], {top}
    for each in found:
        more = [pid for pid, parent in parents.items() if parent == each and pid not in known]
        found += more
        known.update(more)
    return found[1:]


if __name__ == "__main__":
    code = main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
    if code < 0:  # end as the program ended, without a second core file
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        with suppress(OSError, ValueError):
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, set(signal.Signals))
        os.kill(os.getpid(), -code)
    os._exit(code)
