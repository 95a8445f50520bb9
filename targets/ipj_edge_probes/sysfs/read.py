"""Reading sysfs files: every way a read can fail becomes a reason with its remedy."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from ipj_edge_probes.refusal import UnreadableError

_PAGE_BYTES = 4096

Reader = Callable[[Path], str]

_REASONS = {
    errno.ENODATA: ("the channel is switched off ({path} gives ENODATA)", "write 1 to its _enable file"),
    errno.ENOENT: ("{path} is gone: the driver was removed, or a container hides it", ""),
    errno.ENODEV: ("{path} is gone: the sensor was removed", ""),
    errno.EIO: ("the sensor did not answer ({path} gives EIO)", "look into dmesg for its driver"),
    errno.ENXIO: ("the sensor did not answer ({path} gives ENXIO)", "look into dmesg for its driver"),
    errno.ETIMEDOUT: ("the sensor did not answer in time ({path})", "look into dmesg for its driver"),
}


def read_text(path: Path) -> str:
    """Return a file's text; a vendor's stray bytes do not stop it.

    A file of sysfs is one page at most and comes in one read. Three system calls cost half of what a file object
    does, which counts at fifty polls a second.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, _PAGE_BYTES).decode(errors="replace")
    finally:
        os.close(descriptor)


def number(path: Path, read: Reader = read_text) -> int:
    """Read a whole number.

    Raises:
        UnreadableError: not permitted, switched off, gone, no answer, or no number.
    """
    try:
        text = read(path).strip()
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        return int(text)
    except ValueError as error:
        raise UnreadableError(f"{path} holds '{text[:40]}' where a whole number was expected") from error


def text_or_empty(path: Path, read: Reader = read_text) -> str:
    """Return the stripped text of a file that need not be there."""
    try:
        return read(path).strip()
    except OSError:
        return ""


def unreadable(path: Path, error: OSError) -> UnreadableError:
    """Say why a file could not be read, and what helps."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return UnreadableError(
            f"{path} is there but this user may not read it",
            f"run as root, or until the next reboot: sudo chmod a+r {path}",
        )
    reason, fix = _REASONS.get(error.errno or 0, ("{path} cannot be read: " + (error.strerror or str(error)), ""))
    return UnreadableError(reason.format(path=path), fix)
