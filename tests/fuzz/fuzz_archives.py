""".npz files that are not what they say: flags, methods, headers, members and sizes that lie."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable, Mapping
from io import BytesIO
from random import Random
from typing import Any

import numpy as np
from fuzz_bytes import damaged

_ODD_HEADERS = (
    "{'descr': '<f4', 'fortran_order': False, 'shape': (64000000000000,), }",  # claims 233 TiB
    "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 16), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 3), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 99999999999999999999), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (400000000,), }",
    "{'descr': '|O', 'fortran_order': False, 'shape': (2,), }",
    "{'descr': '<V99999', 'fortran_order': False, 'shape': (2,), }",
    "{'descr': '<f3', 'fortran_order': 7, 'shape': 'x', }",
    "{'descr': [('a', '<f4'), ('b', '|O')], 'fortran_order': False, 'shape': (2,), }",
    "{'descr': '<M8[s]', 'fortran_order': True, 'shape': (1,), }",
    "{'descr': '<U2000000000', 'fortran_order': False, 'shape': (1,), }",
    "{'descr': '<f4'}",
    "(" * 5000,
    "[" * 60_000,
    "__import__('os').system('touch ../outside/owned')",
    "",
)


def odd_archive(arrays: Mapping[str, Any], rng: Random) -> bytes:
    """Return an .npz file of these arrays, or nearly so."""
    return rng.choice(_TRICKS)(dict(arrays), rng)


def archive(members: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a zip file of these members."""
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w", method) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return stream.getvalue()


def _member(value: Any) -> bytes:
    stream = BytesIO()
    np.lib.format.write_array(stream, np.asarray(value))
    return stream.getvalue()


def _members(arrays: Mapping[str, Any]) -> dict[str, bytes]:
    return {f"{name}.npy": _member(value) for name, value in arrays.items()}


def _bytes(arrays: dict[str, Any], rng: Random) -> bytes:
    return damaged(archive(_members(arrays)), rng)


def _stored_bytes(arrays: dict[str, Any], rng: Random) -> bytes:
    return damaged(archive(_members(arrays), zipfile.ZIP_STORED), rng)


def _arrays(arrays: dict[str, Any], rng: Random) -> bytes:
    """Change an array: its dtype, shape, values or name."""
    name = rng.choice(list(arrays))
    value = np.asarray(arrays[name])
    changes: tuple[Callable[[], Any], ...] = (
        lambda: value.astype(np.complex128), lambda: value.astype("U8"), lambda: value.astype(">f8"),
        lambda: value.astype("M8[s]"), lambda: value[:0], lambda: value[..., :1], lambda: value[None],
        lambda: np.full(value.shape, np.nan), lambda: np.full(value.shape, 1e300), lambda: np.float32(1),
        lambda: value.astype(bool), lambda: value.astype(np.float16), lambda: np.asfortranarray(value),
        lambda: np.zeros((*(2,) * 31, 0), np.int8), lambda: np.zeros(3, [("a", "f4")]), lambda: value.astype("S3"),
        lambda: np.full(value.shape, -(2**62)), lambda: value.reshape(-1),
    )  # fmt: skip
    with np.errstate(all="ignore"):
        arrays[name] = rng.choice(changes)()
    if rng.random() < 0.2:
        arrays[rng.choice(("", "../x", "/x", "a\x00b", "labels", "x" * 300, "in/", "é"))] = arrays.pop(name)
    return archive(_members(arrays))


def _header(arrays: dict[str, Any], rng: Random) -> bytes:
    """Give a member an odd header in front of its data."""
    members = _members(arrays)
    text = rng.choice(_ODD_HEADERS).encode() + b"\n"
    version = rng.choice((b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"))
    size = struct.pack("<H", min(len(text), 65535)) if version == b"\x01\x00" else struct.pack("<I", len(text))
    members[rng.choice(list(members))] = b"\x93NUMPY" + version + size + text + b"\x00" * rng.choice((0, 8, 4000))
    return archive(members)


def _flags(arrays: dict[str, Any], rng: Random) -> bytes:
    """Change a field of every local header and directory entry: encryption, method, sizes, checksum."""
    data = bytearray(archive(_members(arrays), rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))))
    local, central, size, values = rng.choice(
        (
            (6, 8, 2, (1, 0x41, 0x2000, 0x800, 0xFFFF)),  # flags
            (8, 10, 2, (1, 9, 12, 14, 93, 98, 99, 255)),  # method
            (14, 16, 4, (0, 0xFFFFFFFF)),  # checksum
            (18, 20, 4, (0, 1, 0x7FFFFFFF, 0xFFFFFFFF)),  # compressed size
            (22, 24, 4, (0, 1, 0x7FFFFFFF, 0xFFFFFFFF)),  # size
            (28, 30, 2, (0, 9, 0xFFFF)),  # length of the extra field
        )
    )
    value = rng.choice(values).to_bytes(size, "little")
    for mark, offset in ((b"PK\x03\x04", local), (b"PK\x01\x02", central)):
        place = data.find(mark)
        while place >= 0:
            data[place + offset : place + offset + size] = value
            place = data.find(mark, place + 4)
    return bytes(data)


def _stranger(arrays: dict[str, Any], rng: Random) -> bytes:
    """Put what is no array, or stands twice, among the members."""
    stream = BytesIO()
    members = _members(arrays)
    odd = rng.choice(("notes.txt", "x", "../outside/canary", "/abs.npy", "a/../../b.npy", "dir/", *members))
    method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    with zipfile.ZipFile(stream, "w", method) as file:
        for name, data in members.items():
            file.writestr(name, data)
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a doubled name
            file.writestr(odd, rng.choice((b"", b"no array", b"\x93NUMPY", b"\x80\x04.", _member([1.0]))))
    return stream.getvalue()


def _bomb(arrays: dict[str, Any], rng: Random) -> bytes:
    """Let a member grow to 400 MB when it is unpacked; its file is small."""
    members = _members(arrays)
    shape = rng.choice(("(100000000,)", "(2, 50000000)"))
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    head = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text
    members[rng.choice(list(members))] = head + bytes(20_000_000)
    return archive(members)


def _no_archive(arrays: dict[str, Any], rng: Random) -> bytes:
    return rng.choice(
        (b"", b"PK", b"PK\x05\x06" + bytes(18), _member([1.0, 2.0]), b"\x80\x04K\x01.", rng.randbytes(300))
    )


_TRICKS: tuple[Callable[[dict[str, Any], Random], bytes], ...] = (
    *(_bytes, _bytes, _stored_bytes, _arrays, _arrays, _header, _header, _flags, _flags, _stranger, _no_archive),
    *([_bytes, _arrays, _header, _flags] * 5),
    _bomb,
)
