"""What was hashed is what runs: an engine's file is copied into sealed memory, hashed there, and loaded from there.

The file on disk may then be overwritten, truncated or swapped: nothing changes. Where the system has no sealed memory
(not Linux, or an old kernel), the copy lies in a private temporary folder.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import mmap
import os
import shutil
import tempfile
import weakref
from pathlib import Path

from ipj_edge.bundles.folder import opened_folder, opened_inside
from ipj_edge.bundles.manifest import Bundle, FileRecord
from ipj_edge.errors import BundleError, TargetUnavailableError

_log = logging.getLogger(__name__)
_BLOCK = 1 << 24
_FULL = (errno.ENOSPC, errno.ENOMEM, errno.EDQUOT, errno.EFBIG)


class SealedFile:
    """A private copy of one file of a bundle, with the hash that the manifest records.

    It lasts as long as this object. An engine that maps what it loads may outlive it: a mapping keeps its memory.

    Attributes:
        name: The file's name in the bundle.
        path: Where an engine opens the copy.
    """

    def __init__(self, name: str, size_bytes: int) -> None:
        self.name = name
        self._size_bytes = size_bytes
        self._descriptor, path, reason = _private(Path(name).name)
        self.path = path
        folder = None if not reason else path.parent
        self._end = weakref.finalize(self, _discard, self._descriptor, folder)
        if reason:
            _log.info("'%s' is loaded from a private copy in %s: %s", name, path.parent, reason)

    def close(self) -> None:
        """Give up the copy. Calling twice is allowed."""
        self._end()

    def mapped(self) -> mmap.mmap | bytes:
        """Return the bytes, mapped and not copied."""
        if not self._size_bytes:
            return b""
        return mmap.mmap(self._descriptor, self._size_bytes, prot=mmap.PROT_READ)

    def take(self, source: int) -> str:
        """Copy an open file into this one, let nobody change it from here on, and return its sha256."""
        _copy(source, self._descriptor, self._size_bytes)
        if _can_seal():
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
            if self.path.parts[1:2] == ("proc",):
                fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, seals)
        content = self.mapped()
        digest = hashlib.sha256(content).hexdigest()
        if isinstance(content, mmap.mmap):
            content.close()
        return digest


def seal_file(bundle: Bundle, name: str) -> SealedFile:
    """Copy a file of a bundle to where nobody can change it, and check the copy against the manifest.

    Raises:
        BundleError: the file is missing, damaged, not recorded, or no plain file inside the bundle.
        TargetUnavailableError: there is no memory for it.
    """
    shown = bundle.path / name
    record = next((each for each in bundle.manifest.files if each.path == name), None)
    if record is None:
        raise BundleError(f"'{name}' is none of the files the manifest records; copy the bundle again")
    try:
        with opened_folder(bundle.path) as folder, opened_inside(folder, name, shown) as source:
            if os.fstat(source).st_size != record.size_bytes:
                raise _damaged(shown)
            return _sealed(record, source, shown)
    except FileNotFoundError as error:
        raise BundleError(f"{shown} is missing; copy the bundle again") from error


def _sealed(record: FileRecord, source: int, shown: Path) -> SealedFile:
    try:
        copy = SealedFile(record.path, record.size_bytes)
        found = copy.take(source)
    except OSError as error:
        if error.errno in _FULL:
            raise TargetUnavailableError(f"no memory for the {record.size_bytes} bytes of {shown}") from error
        raise BundleError(f"{shown} cannot be read: {error.strerror}; copy the bundle again") from error
    if found != record.sha256:
        copy.close()
        raise _damaged(shown)
    return copy


def _damaged(shown: Path) -> BundleError:
    return BundleError(f"{shown} is damaged: its bytes are not those the manifest records; copy the bundle again")


def _can_seal() -> bool:
    return hasattr(fcntl, "F_ADD_SEALS") and hasattr(os, "memfd_create")


def _private(name: str) -> tuple[int, Path, str]:
    """Return a new file that only we write to, where it is opened, and why it is on disk (empty: it is not)."""
    reason = "this system has no sealed memory"
    if _can_seal() and Path("/proc/self/fd").is_dir():
        try:
            descriptor = os.memfd_create(name[:200], os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            return descriptor, Path(f"/proc/self/fd/{descriptor}"), ""
        except OSError as error:
            reason = f"no sealed memory: {error.strerror}"
    folder = Path(tempfile.mkdtemp(prefix="ipj-edge-"))
    path = folder / name
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), path, reason


def _copy(source: int, into: int, size_bytes: int) -> None:
    left = size_bytes
    try:
        while left and (moved := os.sendfile(into, source, None, min(left, _BLOCK))):
            left -= moved
    except OSError as error:
        # Some file systems cannot send; what was sent so far stays.
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.ENOTSOCK):
            raise
        while left and (block := os.read(source, min(left, _BLOCK))):
            view = memoryview(block)
            while view:
                view = view[os.write(into, view) :]
            left -= len(block)
    if left:
        raise OSError(errno.EIO, "it became shorter while it was read")


def _discard(descriptor: int, folder: Path | None) -> None:
    os.close(descriptor)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
