"""Nothing half-made: a bundle is built in a hidden folder beside its destination and renamed when it is proven.

The hidden folder holds a lock for as long as its process lives. What a killed run left behind can therefore be told
from what a running one is building, and the next run removes it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ipj_edge.errors import DestinationError

_LOCK, _BUILT, _REPLACED = "lock", "built", "replaced"
# What a full disk is called.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def check_free(destination: Path, *, force: bool) -> None:
    """Refuse a destination that is taken.

    Raises:
        DestinationError: it exists and force is not given.
    """
    if destination.exists() and not force:
        raise DestinationError(f"{destination} exists: give --force to replace it, or another folder with -o")


@contextmanager
def workspace(destination: Path) -> Iterator[Path]:
    """Yield an empty folder to build a bundle in, beside its destination; it is gone afterwards.

    Raises:
        DestinationError: the folder cannot be made or written, or the disk is full.
    """
    prefix = f".{destination.name}.tmp-"
    with _disk_errors(destination):
        destination.parent.mkdir(parents=True, exist_ok=True)
        sweep(destination)
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=destination.parent))
    try:
        with _disk_errors(destination), (folder / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (folder / _BUILT).mkdir()
            yield folder / _BUILT
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish(built: Path, destination: Path, *, force: bool) -> None:
    """Rename a proven bundle to its destination, replacing an old one only with force.

    Raises:
        DestinationError: it exists and force is not given, or cannot be renamed.
    """
    check_free(destination, force=force)
    with _disk_errors(destination):
        if destination.exists():
            os.rename(destination, built.parent / _REPLACED)
        built.chmod(0o755)
        os.rename(built, destination)


def sweep(destination: Path) -> None:
    """Remove what killed runs left beside a destination; give back a bundle they had moved out of the way."""
    for folder in destination.parent.glob(f".{destination.name}.tmp-*"):
        if not _abandoned(folder):
            continue
        if (folder / _REPLACED).exists() and not destination.exists():
            os.rename(folder / _REPLACED, destination)
        shutil.rmtree(folder, ignore_errors=True)


def _abandoned(folder: Path) -> bool:
    try:
        with (folder / _LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    except OSError:
        # Made a moment ago and not locked yet, or killed in between: a minute tells the two apart.
        return not (folder / _LOCK).exists() and time.time() - folder.stat().st_mtime > 60


@contextmanager
def _disk_errors(destination: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = "the disk is full" if error.errno in FULL else (error.strerror or str(error))
        raise DestinationError(f"cannot write {destination}: {what}; nothing was published") from error
