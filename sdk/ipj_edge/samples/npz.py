"""Reading an ``.npz`` of a stranger in bounded time and memory: no header is believed before the file bears it out."""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from math import prod
from tokenize import TokenError
from typing import Any, BinaryIO

import numpy as np

from ipj_edge.errors import first_line
from ipj_edge.protocols import Array

MOST_MEMBERS = 4096
_MOST_AXES = 32
_HEADER_LIMIT_BYTES = 1 << 16
_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_KINDS = "biufcSU"
_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_BLOCK = 1 << 20


class ArchiveError(Exception):
    """An archive that cannot be read as arrays; says why in one line."""


def read_npz(stream: BinaryIO, *, limit_bytes: int | None = None) -> dict[str, Array]:
    """Return the arrays of an ``.npz`` by name.

    Args:
        stream: The open file.
        limit_bytes: Most bytes that all arrays may have together; None for the memory that is free.

    Raises:
        ArchiveError: it is no such archive, is encrypted or packed in another way than numpy's, holds something else
            than arrays of numbers or text, or claims more than the limit.
    """
    limit = _free_memory() if limit_bytes is None else limit_bytes
    try:
        with zipfile.ZipFile(stream) as archive:
            members = archive.infolist()
            _check_members(members, limit)
            return {_name(member): _read_member(archive, member) for member in members}
    except ArchiveError:
        raise
    except MemoryError as error:
        raise ArchiveError("there is no memory for its arrays") from error
    except (
        OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, TypeError,
        OverflowError, SyntaxError, KeyError, IndexError, RecursionError, AttributeError, TokenError,
    ) as error:  # fmt: skip
        raise ArchiveError(first_line(error)) from error


def _check_members(members: list[zipfile.ZipInfo], limit: int) -> None:
    names = [member.filename for member in members]
    if len(names) > MOST_MEMBERS:
        raise ArchiveError(f"it holds {len(names)} members; {MOST_MEMBERS} are the most")
    if len(set(names)) != len(names):
        raise ArchiveError("it holds a member twice")
    for member in members:
        if member.flag_bits & 0x1:
            raise ArchiveError(f"{member.filename[:100]!a} is encrypted")
        if member.compress_type not in _PACKINGS:
            raise ArchiveError(f"{member.filename[:100]!a} is packed in a way numpy does not write")
        if not member.filename.endswith(".npy"):
            raise ArchiveError(f"{member.filename[:100]!a} is no array: an .npz holds .npy members only")
    total = sum(member.file_size for member in members)
    if total > limit:
        raise ArchiveError(f"its arrays claim {total} bytes; {limit} are the most here")


def _name(member: zipfile.ZipInfo) -> str:
    return member.filename.removesuffix(".npy")


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    with archive.open(member) as packed:
        shape, fortran, dtype = _read_header(packed, member.filename)
        size = prod(shape) * dtype.itemsize
        left = member.file_size - packed.tell()
        if size != left:
            raise ArchiveError(f"the header of {member.filename[:100]!a} claims {size} bytes of values, it has {left}")
        values = _read_values(packed, size, member.filename)
        # At the end of a member zipfile compares its checksum.
        if packed.read(1):
            raise ArchiveError(f"{member.filename[:100]!a} goes on after its array")
    return values.view(dtype).reshape(shape, order="F" if fortran else "C") if size else np.empty(shape, dtype)


def _read_header(packed: Any, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(packed)
    reader = _READERS.get(version)
    if reader is None:
        raise ArchiveError(f"{name[:100]!a} has a header of version {version}")
    shape, fortran, dtype = reader(packed, max_header_size=_HEADER_LIMIT_BYTES)
    if dtype.hasobject or dtype.kind not in _KINDS:
        raise ArchiveError(f"{name[:100]!a} holds {str(dtype)[:60]}, neither numbers nor text")
    if len(shape) > _MOST_AXES or any(size < 0 for size in shape):
        raise ArchiveError(f"{name[:100]!a} has an impossible shape")
    return shape, bool(fortran), dtype


def _read_values(packed: Any, size: int, name: str) -> Array:
    """Return the bytes of the values; memory grows with what the file really holds, not with what it claims."""
    values = np.empty(size, np.uint8)
    view, place = values.data, 0
    while place < size:
        got = packed.readinto(view[place : place + _BLOCK])
        if not got:
            raise ArchiveError(f"{name[:100]!a} ends after {place} of {size} bytes")
        place += got
    return values


def _free_memory() -> int:
    """Return the bytes of memory that are free, or can be made so."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            found = re.search(r"^MemAvailable:\s+(\d+) kB", file.read(), re.MULTILINE)
    except OSError:
        found = None
    if found is not None:
        return 1024 * int(found[1])
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
