"""The artifact on disk: open a bundle and check every byte of it, write its manifest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import msgspec

from ipj_edge.bundles.manifest import MANIFEST_NAME, SCHEMA_VERSION, Bundle, FileRecord, Manifest
from ipj_edge.bundles.seal import is_intact, sealed
from ipj_edge.errors import BundleError


class _Header(msgspec.Struct):
    schema_version: int


def sha256_file(path: Path) -> str:
    """Return the hexadecimal sha256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def record_files(folder: Path, *, unreproducible: Iterable[str] = ()) -> tuple[FileRecord, ...]:
    """Return size and hash of every file below a folder, the manifest left out, sorted by path."""
    exempt = set(unreproducible)
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / MANIFEST_NAME)
    names = [(path, path.relative_to(folder).as_posix()) for path in paths]
    return tuple(
        FileRecord(path=name, size_bytes=path.stat().st_size, sha256=sha256_file(path), reproducible=name not in exempt)
        for path, name in names
    )


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest with its own digest into a bundle's folder."""
    (folder / MANIFEST_NAME).write_bytes(sealed(manifest))


def open_bundle(path: str | Path, *, check_files: bool = True) -> Bundle:
    """Open a bundle and check it: schema version, the manifest's own digest, every file's hash.

    Args:
        path: The bundle's folder.
        check_files: False skips hashing the files (listing only; never before running one).

    Raises:
        BundleError: missing, damaged, or of a version this ipj-edge does not know; names the file.
    """
    folder = Path(path)
    manifest = _read_manifest(folder)
    if check_files:
        for record in manifest.files:
            _check_file(folder, record)
    _check_programs(folder, manifest)
    return Bundle(path=folder, manifest=manifest)


def _read_manifest(folder: Path) -> Manifest:
    file = folder / MANIFEST_NAME
    try:
        raw = file.read_bytes()
    except FileNotFoundError as error:
        why = f"it has no {MANIFEST_NAME}" if folder.exists() else "there is nothing at that path"
        raise BundleError(f"{folder} is not a bundle: {why}; give a folder that `ipj-edge convert` made") from error
    except OSError as error:
        raise BundleError(f"cannot read {file}: {error.strerror}") from error
    _check_version(file, raw)
    if not is_intact(raw):
        raise BundleError(f"{file} is damaged: its digest does not match; copy the bundle again")
    try:
        return msgspec.json.decode(raw, type=Manifest)
    except msgspec.MsgspecError as error:
        raise BundleError(f"{file} does not follow schema version {SCHEMA_VERSION}: {error}") from error


def _check_version(file: Path, raw: bytes) -> None:
    try:
        version = msgspec.json.decode(raw, type=_Header).schema_version
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BundleError(f"{file} is damaged: {error}; copy the bundle again") from error
    if version > SCHEMA_VERSION:
        raise BundleError(
            f"{file} has schema version {version}, this ipj-edge reads up to {SCHEMA_VERSION}: "
            "upgrade ipj-edge or convert the model again"
        )


def _check_programs(folder: Path, manifest: Manifest) -> None:
    """Refuse a program that is none of the recorded files: nothing would vouch for its bytes."""
    recorded = {record.path for record in manifest.files}
    for stage in (*manifest.stages, *((manifest.unsplit,) if manifest.unsplit is not None else ())):
        for file in (stage.file, stage.proxy_file):
            if file is not None and file not in recorded:
                raise BundleError(f"{folder / MANIFEST_NAME} runs '{file}', which is none of the files it records")


def _check_file(folder: Path, record: FileRecord) -> None:
    pure = PurePosixPath(record.path)
    if pure.is_absolute() or ".." in pure.parts:
        raise BundleError(f"{folder / MANIFEST_NAME} names a file outside the bundle: {record.path}")
    file = folder / pure
    try:
        size = file.stat().st_size
        damaged = size != record.size_bytes or sha256_file(file) != record.sha256
    except OSError as error:
        raise BundleError(f"{file} is missing or unreadable ({error.strerror}); copy the bundle again") from error
    if damaged:
        raise BundleError(f"{file} is damaged: its bytes are not those the manifest records; copy the bundle again")
