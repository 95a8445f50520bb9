"""Reading a bundle's folder, which may come from a stranger.

Every file is opened from the open folder, one name at a time, and no link is followed: what is read lies inside, and
what is swapped between two looks does not help. What is no file (a link, a pipe, a device, a socket) is not opened.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ipj_edge.bundles.manifest import LATER_NAMES
from ipj_edge.errors import BundleError

# Most bytes that are read of a record (the manifest, exits.json, …) and of one recorded file.
RECORD_LIMIT_BYTES = 16 << 20
FILE_LIMIT_BYTES = 16 << 30
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


@contextmanager
def opened_folder(path: Path) -> Iterator[int]:
    """Open a bundle's folder and give its descriptor.

    Raises:
        BundleError: it is none; says what is there.
    """
    try:
        descriptor = os.open(path, _FOLDER)
    except (OSError, ValueError) as error:
        why = "there is nothing at that path" if isinstance(error, FileNotFoundError) else f"{_reason(error)}"
        raise BundleError(f"{path} is not a bundle: {why}; give a folder that `ipj-edge convert` made") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened_inside(folder: int, name: str, shown: Path) -> Iterator[int]:
    """Open a file inside an open folder and give its descriptor.

    Args:
        folder: Descriptor of the bundle's folder.
        name: The file, relative to it, with forward slashes.
        shown: What messages call it.

    Raises:
        FileNotFoundError: there is none.
        BundleError: it is a link or no file, or cannot be read.
    """
    *parents, last = name.split("/")
    held = folder
    try:
        for parent in parents:
            inner = os.open(parent, _FOLDER | os.O_NOFOLLOW, dir_fd=held)
            if held != folder:
                os.close(held)
            held = inner
        _refuse_other_kinds(os.stat(last, dir_fd=held, follow_symlinks=False).st_mode, shown)
        descriptor = os.open(last, _FILE, dir_fd=held)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise BundleError(f"{shown} cannot be read: {_reason(error)}") from error
    finally:
        if held != folder:
            os.close(held)
    try:
        _refuse_other_kinds(os.fstat(descriptor).st_mode, shown)
        yield descriptor
    finally:
        os.close(descriptor)


def read_inside(path: Path, name: str, limit_bytes: int = RECORD_LIMIT_BYTES) -> bytes:
    """Return the bytes of a small file of a bundle.

    Raises:
        FileNotFoundError: there is none.
        BundleError: it is a link or no file, cannot be read, or is larger than any of ours.
    """
    shown = path / name
    with opened_folder(path) as folder, opened_inside(folder, name, shown) as descriptor:
        try:
            with open(descriptor, "rb", closefd=False) as file:
                raw = file.read(limit_bytes + 1)
        except OSError as error:
            raise BundleError(f"{shown} cannot be read: {_reason(error)}") from error
    if len(raw) > limit_bytes:
        raise BundleError(f"{shown} is larger than {limit_bytes >> 20} MiB, the most that is read of such a file")
    return raw


def check_entries(folder: int, path: Path, names: frozenset[str]) -> None:
    """Refuse what lies in a bundle's folder beside the files of these names.

    Raises:
        BundleError: a file, a folder or something else that is not among them; names it.
    """
    parents = {"/".join(name.split("/")[:depth]) for name in names for depth in range(1, name.count("/") + 1)}
    waiting = [""]
    while waiting:
        here = waiting.pop()
        for entry, mode in _entries(folder, here, path):
            if entry in parents and stat.S_ISDIR(mode):
                waiting.append(entry)
            elif entry not in names and not _is_draft(entry):
                raise BundleError(
                    f"{path} holds {entry!a}, which its manifest does not record; remove it, or copy the bundle again"
                )
            else:
                _refuse_other_kinds(mode, path / entry)


def _entries(folder: int, here: str, path: Path) -> Iterator[tuple[str, int]]:
    """Yield what lies in a folder of the bundle, by its name relative to the bundle, with its mode."""
    try:
        descriptor = os.open(here or ".", _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
        try:
            with os.scandir(descriptor) as found:
                for each in found:
                    yield (f"{here}/{each.name}" if here else each.name), each.stat(follow_symlinks=False).st_mode
        finally:
            os.close(descriptor)
    except OSError as error:
        raise BundleError(f"{path / here} cannot be read: {_reason(error)}") from error


def _is_draft(entry: str) -> bool:
    """Say whether this is what a killed `write_file` left of a file that may come later; it is never read."""
    dot, _, rest = entry.partition(".")
    name, _, token = rest.removesuffix(".part").rpartition(".")
    return not dot and rest.endswith(".part") and name in LATER_NAMES and len(token) == 16 and token.isalnum()


def _refuse_other_kinds(mode: int, shown: Path) -> None:
    if stat.S_ISREG(mode):
        return
    what = next((name for matches, name in _KINDS if matches(mode)), "no file")
    raise BundleError(f"{shown} is {what}; a bundle holds plain files only: copy the bundle again")


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
