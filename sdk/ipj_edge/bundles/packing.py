"""A bundle as one reproducible .tar: the same bundle gives the same bytes, and unpacking trusts none of them.

Written and read is plain ustar with files alone. Links, folders, devices, extended headers and sparse files are refused
by their type, so that no header can claim more memory or disk than the archive itself has.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from ipj_edge.bundles.bundle import open_bundle
from ipj_edge.bundles.folder import FILE_LIMIT_BYTES, read_inside
from ipj_edge.bundles.manifest import LATER_NAMES, MANIFEST_NAME, SUFFIX, Bundle
from ipj_edge.bundles.manifest_checks import MOST_FILES
from ipj_edge.bundles.sealed_files import seal_file
from ipj_edge.errors import BundleError, DestinationError
from ipj_edge.writing import replacing

LIMIT_BYTES = 4 * FILE_LIMIT_BYTES
_BLOCK = tarfile.BLOCKSIZE
_PIECE = 1 << 20
_TOP = re.compile(r"[^./\x00-\x1f\x7f][^/\x00-\x1f\x7f]{0,200}" + re.escape(SUFFIX))
_PART = re.compile(r"[^/\\\x00-\x1f\x7f]{1,255}")


def pack_bundle(path: str | Path, into: Path, *, force: bool = False) -> Bundle:
    """Write a bundle, with what came into its folder later, as one .tar; return the bundle.

    Raises:
        BundleError: it is damaged, or a path inside is too long for a .tar.
        DestinationError: the file exists and force is not given, or cannot be written.
    """
    bundle = open_bundle(path)
    if into.exists() and not force:
        raise DestinationError(f"{into} exists: give --force to replace it, or another name with -o")
    manifest = bundle.manifest
    top = f"{manifest.name}.{manifest.target}.{manifest.precision}{SUFFIX}"
    if not _TOP.fullmatch(top):
        raise BundleError(f"a bundle named {manifest.name!a} cannot be packed: the name is no name of a folder")
    names = sorted([MANIFEST_NAME, *LATER_NAMES, *(record.path for record in manifest.files)])
    recorded = {record.path for record in manifest.files}
    with replacing(into) as stream:
        written = 0
        for name in names:
            written += _add_sealed(stream, bundle, top, name) if name in recorded else _add(stream, bundle, top, name)
        stream.write(bytes(2 * _BLOCK + -(written + 2 * _BLOCK) % tarfile.RECORDSIZE))
    return bundle


def unpack_bundle(archive: Path, into: Path, *, digest: str | None = None, key: str | Path | None = None) -> Bundle:
    """Unpack a bundle below a folder, under the name it was packed with, once all of it is checked; return it.

    Args:
        archive: The .tar.
        into: Folder to put the bundle's folder in.
        digest: Accept only the bundle whose manifest has this digest.
        key: Public key file (PEM, Ed25519): accept only a bundle signed with it.

    Raises:
        BundleError: it is no packed bundle, holds something else, or is damaged. Nothing was left behind.
        DestinationError: the bundle's folder exists already, or cannot be written.
    """
    with _opened(archive) as stream:
        try:
            into.mkdir(parents=True, exist_ok=True)
            draft = Path(tempfile.mkdtemp(prefix=".unpack-", dir=into))
        except OSError as error:
            raise DestinationError(f"cannot write {into}: {error.strerror}") from error
        try:
            top = _extract(stream, archive, draft)
            open_bundle(draft, digest=digest, key=key)
            destination = into / top
            if os.path.lexists(destination):
                raise DestinationError(f"{destination} exists: remove it, or give another folder with -o")
            draft.chmod(0o755)
            draft.rename(destination)
        except OSError as error:
            raise DestinationError(f"cannot write {into}: {error.strerror or error}; nothing was unpacked") from error
        except BundleError as error:
            raise BundleError(str(error).replace(str(draft), str(archive))) from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return open_bundle(destination, digest=digest, key=key)


def _add_sealed(stream: BinaryIO, bundle: Bundle, top: str, name: str) -> int:
    copy = seal_file(bundle, name)
    try:
        with copy.path.open("rb") as content:
            size = os.fstat(content.fileno()).st_size
            stream.write(_header(top, name, size))
            shutil.copyfileobj(content, stream, _PIECE)
    finally:
        copy.close()
    return _pad(stream, size)


def _add(stream: BinaryIO, bundle: Bundle, top: str, name: str) -> int:
    """Add the manifest, or what came later where it is there."""
    with suppress(FileNotFoundError):
        content = read_inside(bundle.path, name)
        stream.write(_header(top, name, len(content)))
        stream.write(content)
        return _pad(stream, len(content))
    return 0


def _pad(stream: BinaryIO, size: int) -> int:
    stream.write(bytes(-size % _BLOCK))
    return _BLOCK + size + -size % _BLOCK


def _header(top: str, name: str, size: int) -> bytes:
    entry = tarfile.TarInfo(f"{top}/{name}")
    entry.size, entry.mode, entry.mtime = size, 0o644, 0
    try:
        return entry.tobuf(tarfile.USTAR_FORMAT, "utf-8", "strict")
    except ValueError as error:
        raise BundleError(f"'{name}' cannot be packed: {error}") from error


def _opened(archive: Path) -> BinaryIO:
    try:
        descriptor = os.open(archive, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise BundleError(f"cannot read {archive}: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BundleError(f"{archive} is no file: give a .tar that `ipj-edge pack` made")
    return os.fdopen(descriptor, "rb")


def _extract(stream: BinaryIO, archive: Path, draft: Path) -> str:
    """Write the files of an archive into an empty folder of ours; return the name of the folder they were packed in."""
    tops: set[str] = set()
    seen: set[str] = set()
    left = LIMIT_BYTES
    for entry in _entries(stream, archive):
        top, _, name = entry.name.partition("/")
        tops.add(top)
        left -= entry.size
        _check_name(archive, entry.name, name, tops)
        if name in seen or len(seen) >= MOST_FILES or left < 0:
            why = f"holds {name!a} twice" if name in seen else "holds more than a bundle may"
            raise BundleError(f"{archive} {why}")
        seen.add(name)
        _write(stream, archive, entry.size, draft / name)
    if MANIFEST_NAME not in seen:
        raise BundleError(f"{archive} is no packed bundle: it holds no {MANIFEST_NAME}")
    return tops.pop()


def _check_name(archive: Path, whole: str, name: str, tops: set[str]) -> None:
    parts = name.split("/")
    plain = all(_PART.fullmatch(part) and part not in (".", "..") for part in parts) and len(parts) <= 16
    if not plain or len(tops) != 1 or not all(map(_TOP.fullmatch, tops)):
        raise BundleError(f"{archive} holds {whole[:200]!a}, which is no file inside one bundle's folder")


def _entries(stream: BinaryIO, archive: Path) -> Iterator[tarfile.TarInfo]:
    """Yield the headers of an archive; the caller reads what belongs to each before it asks for the next."""
    while True:
        header = stream.read(_BLOCK)
        if header == bytes(_BLOCK):
            break
        try:
            entry = tarfile.TarInfo.frombuf(header, "utf-8", "strict")
        except (tarfile.HeaderError, ValueError) as error:
            raise BundleError(f"{archive} is no whole .tar of a bundle: {error}") from error
        if entry.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise BundleError(f"{archive} holds {entry.name[:200]!a}, which is no plain file")
        if not 0 <= entry.size <= FILE_LIMIT_BYTES:
            raise BundleError(f"{archive} holds {entry.name[:200]!a} of {entry.size} bytes, which cannot be")
        yield entry
    rest = stream.read(2 * tarfile.RECORDSIZE)
    if rest.strip(b"\0") or len(rest) > tarfile.RECORDSIZE:
        raise BundleError(f"{archive} goes on after its end")


def _write(stream: BinaryIO, archive: Path, size: int, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        left = size
        while left:
            piece = stream.read(min(left, _PIECE))
            if not piece:
                raise BundleError(f"{archive} ends in the middle of {place.name!a}: copy it again")
            file.write(piece)
            left -= len(piece)
        file.flush()
        os.fsync(file.fileno())
    stream.read(-size % _BLOCK)
