"""Files that are on disk whole or not at all: the one place that replaces a file.

A file is written under an unpredictable name beside its place, flushed to the disk and renamed. A killed or failed run
leaves the old file as it was.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ipj_edge.errors import DestinationError

_LONGEST_NAME = 255  # bytes, on every file system we know of
DRAFTS = ".*.part"  # names of drafts, for those who sweep a folder of their own after a kill


def write_file(path: Path, content: bytes | memoryview | str) -> None:
    """Write a file whole or not at all; text as UTF-8.

    Raises:
        DestinationError: it cannot be written; an old file is as it was.
    """
    with replacing(path) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Give a stream for the new content of a file, which takes its place when the block ends without an error.

    A symbolic link at the path is replaced, never followed. An OSError of the block counts as one of the file.

    Raises:
        DestinationError: it cannot be written, or the path is a folder, a device or a pipe; an old file is as it was.
    """
    try:
        draft = _draft(path)
        _check_ordinary(path)
        try:
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            with os.fdopen(handle, "wb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(draft, path)
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
    except OSError as error:
        raise DestinationError(f"cannot write {path}: {error.strerror or error}; nothing was changed") from error
    _flush_folder(path.parent)


def check_writable(path: Path) -> None:
    """Refuse, before any work, a place that `write_file` could not write: a draft is made there and taken away.

    Raises:
        DestinationError: names the place and the reason.
    """
    if not path.parent.is_dir():
        raise DestinationError(f"cannot write {path}: its folder does not exist")
    try:
        _check_ordinary(path)
        draft = _draft(path)
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666))
        draft.unlink()
    except OSError as error:
        raise DestinationError(f"cannot write {path}: {error.strerror or error}") from error


def _draft(path: Path) -> Path:
    """Return a name beside a file that nobody can know: no link can lie there to have another file overwritten."""
    if len(os.fsencode(path.name)) > _LONGEST_NAME:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    return path.with_name(f".{path.name[:40]}.{secrets.token_hex(8)}.part")


def _check_ordinary(path: Path) -> None:
    """Refuse to replace what is no file: a rename would put a file in the place of /dev/null."""
    with suppress(FileNotFoundError):
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise DestinationError(f"cannot write {path}: it is a folder; give the name of a file")
        if not stat.S_ISREG(mode):
            raise DestinationError(f"cannot write {path}: it is a device or a pipe; give the name of a file")


def _flush_folder(folder: Path) -> None:
    """Flush a folder's names to the disk, so that the rename survives a power cut.

    Raises:
        DestinationError: the disk failed.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        # The file is in place; some file systems cannot flush a folder, and one may be writable without being readable.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EPERM, errno.EROFS):
            raise DestinationError(f"the disk failed while it kept a file of {folder}: {error.strerror}") from error
