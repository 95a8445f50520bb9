"""The artifact on disk: open a bundle and check every byte of it, write its manifest."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import msgspec

from ipj_edge.bundles.folder import check_entries, opened_folder, opened_inside, read_inside
from ipj_edge.bundles.manifest import (
    GOLDEN_NAME,
    LATER_NAMES,
    MANIFEST_NAME,
    SCHEMA_VERSION,
    Bundle,
    FileRecord,
    Manifest,
)
from ipj_edge.bundles.manifest_checks import why_impossible
from ipj_edge.bundles.seal import is_intact, sealed
from ipj_edge.bundles.signature import check_signature
from ipj_edge.errors import BundleError, ConfigError, first_line


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


def open_bundle(
    path: str | Path,
    *,
    check_files: bool = True,
    leave_programs: bool = False,
    digest: str | None = None,
    key: str | Path | None = None,
) -> Bundle:
    """Open a bundle and check it: schema version, the manifest's own digest, every file's hash, and that nothing else
    lies in its folder.

    Args:
        path: The bundle's folder.
        check_files: False looks at the manifest alone (listing only; never before running one).
        leave_programs: Leave the hashes of what may belong to programs to `check_unchecked`: a target that loads
            sealed copies checks those.
        digest: Accept only the bundle whose manifest has this digest.
        key: Public key file (PEM, Ed25519): accept only a bundle signed with it.

    Raises:
        BundleError: missing, damaged, impossible, not the one asked for, or of a version this ipj-edge does not know.
        ConfigError: the digest is none, or the key cannot be read.
        MissingDependencyError: a key was given, and the extra ``sign`` is not installed.
    """
    folder = Path(path)
    manifest = _read_manifest(folder)
    if digest is not None:
        _check_digest(folder, manifest, digest)
    check_signature(folder, manifest.digest, key)
    if not check_files:
        return Bundle(path=folder, manifest=manifest)
    names = frozenset({MANIFEST_NAME, *LATER_NAMES, *(record.path for record in manifest.files)})
    with opened_folder(folder) as opened:
        check_entries(opened, folder, names)
    everything = frozenset(record.path for record in manifest.files)
    bundle = Bundle(path=folder, manifest=manifest, unchecked=everything)
    return check_unchecked(bundle, but=everything - {GOLDEN_NAME} if leave_programs else frozenset())


def check_unchecked(bundle: Bundle, *, but: frozenset[str] = frozenset()) -> Bundle:
    """Check the hashes of a bundle's unchecked files but those of some names; return it with these left unchecked.

    Raises:
        BundleError: a file is missing or damaged; names it.
    """
    with opened_folder(bundle.path) as folder:
        for record in bundle.manifest.files:
            if record.path in bundle.unchecked and record.path not in but:
                _check_file(folder, bundle.path, record)
    return msgspec.structs.replace(bundle, unchecked=bundle.unchecked & but)


def _check_digest(folder: Path, manifest: Manifest, digest: str) -> None:
    wanted = digest.lower().removeprefix("sha256:")
    if not re.fullmatch(r"[0-9a-f]{64}", wanted):
        raise ConfigError(f"'{digest[:80]}' is no digest: give the 64 hexadecimal digits that `ipj-edge verify` prints")
    if wanted != manifest.digest:
        raise BundleError(f"{folder} is another bundle than the one asked for: its digest is {manifest.digest}")


def _read_manifest(folder: Path) -> Manifest:
    file = folder / MANIFEST_NAME
    try:
        raw = read_inside(folder, MANIFEST_NAME)
    except FileNotFoundError as error:
        raise BundleError(
            f"{folder} is not a bundle: it has no {MANIFEST_NAME}; give a folder that `ipj-edge convert` made"
        ) from error
    _check_version(file, raw)
    if not is_intact(raw):
        raise BundleError(f"{file} is damaged: its digest does not match; copy the bundle again")
    try:
        manifest = msgspec.json.decode(raw, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BundleError(f"{file} does not follow schema version {SCHEMA_VERSION}: {first_line(error)}") from error
    problem = why_impossible(manifest)
    if problem is not None:
        raise BundleError(f"{file} cannot be right: {problem}; convert the model again")
    return manifest


def _check_version(file: Path, raw: bytes) -> None:
    try:
        version = msgspec.json.decode(raw, type=_Header).schema_version
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BundleError(f"{file} is damaged: {first_line(error)}; copy the bundle again") from error
    if version > SCHEMA_VERSION:
        raise BundleError(
            f"{file} has schema version {version}, this ipj-edge reads up to {SCHEMA_VERSION}: "
            "upgrade ipj-edge or convert the model again"
        )
    if version < 1:
        raise BundleError(f"{file} has schema version {version}, which never was: convert the model again")


def _check_file(folder: int, path: Path, record: FileRecord) -> None:
    shown = path / record.path
    try:
        with opened_inside(folder, record.path, shown) as descriptor, open(descriptor, "rb", closefd=False) as file:
            size = os.fstat(descriptor).st_size
            damaged = size != record.size_bytes or _sha256(file, size) != record.sha256
    except FileNotFoundError as error:
        raise BundleError(f"{shown} is missing; copy the bundle again") from error
    except OSError as error:
        raise BundleError(f"{shown} cannot be read ({error.strerror}); copy the bundle again") from error
    if damaged:
        raise BundleError(f"{shown} is damaged: its bytes are not those the manifest records; copy the bundle again")


def _sha256(file: BinaryIO, most_bytes: int) -> str:
    """Return the sha256 of a file; one that grows while it is read is read to its old end and a block on."""
    digest, left = hashlib.sha256(), most_bytes + 1
    while left > 0 and (block := file.read(min(left, 1 << 20))):
        digest.update(block)
        left -= len(block)
    return digest.hexdigest()
