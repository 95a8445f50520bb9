"""Bundles as .tar files: the same bytes from the same bundle, and nothing of a stranger's archive is trusted."""

import io
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ipj_edge.bundles.bundle import open_bundle
from ipj_edge.bundles.packing import pack_bundle, unpack_bundle
from ipj_edge.errors import BundleError, DestinationError

TOP = "digits.onnxruntime-cpu.int8.ipj"


@pytest.fixture
def packed(bundles: Path, tmp_path: Path) -> Path:
    pack_bundle(bundles / TOP, tmp_path / "b.tar")
    return tmp_path / "b.tar"


def test_the_same_bundle_gives_the_same_bytes(bundles: Path, packed: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(bundles / TOP, tmp_path / "renamed"))
    for file in other.iterdir():
        file.chmod(0o600)
        os.utime(file, (1, 1))
    pack_bundle(other, tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == packed.read_bytes()


def test_a_bundle_comes_back_whole(bundles: Path, packed: Path, tmp_path: Path) -> None:
    bundle = unpack_bundle(packed, tmp_path / "device")
    assert bundle.path == tmp_path / "device" / TOP
    assert {file.name: file.read_bytes() for file in bundle.path.iterdir()} == {
        file.name: file.read_bytes() for file in (bundles / TOP).iterdir()
    }
    with pytest.raises(DestinationError, match="exists"):
        unpack_bundle(packed, tmp_path / "device")
    assert [file.name for file in (tmp_path / "device").iterdir()] == [TOP]


def test_other_programs_read_it_too(packed: Path) -> None:
    with tarfile.open(packed) as archive:
        names = archive.getnames()
    assert names == sorted(names)
    assert f"{TOP}/manifest.json" in names


def test_an_old_file_is_replaced_with_force_only(bundles: Path, packed: Path) -> None:
    with pytest.raises(DestinationError, match="--force"):
        pack_bundle(bundles / TOP, packed)
    pack_bundle(bundles / TOP, packed, force=True)


def _entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> Callable[[tarfile.TarFile], None]:
    def add(archive: tarfile.TarFile) -> None:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = kind, link
        content = b"evil" if kind == tarfile.REGTYPE else b""
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))

    return add


HOSTILE = {
    "absolute": _entry("/tmp/evil"),
    "dots": _entry(f"{TOP}/../evil"),
    "dots first": _entry("../evil"),
    "doubled": _entry(f"{TOP}/manifest.json"),
    "symbolic link": _entry(f"{TOP}/a", tarfile.SYMTYPE, "/etc/passwd"),
    "hard link": _entry(f"{TOP}/a", tarfile.LNKTYPE, "/etc/passwd"),
    "pipe": _entry(f"{TOP}/a", tarfile.FIFOTYPE),
    "device": _entry(f"{TOP}/a", tarfile.CHRTYPE),
    "folder": _entry(f"{TOP}/a", tarfile.DIRTYPE),
    "another top": _entry("other.ipj/a"),
    "no top": _entry("a"),
    "hidden top": _entry(".ssh/authorized_keys"),
    "empty part": _entry(f"{TOP}//a"),
    "backslash": _entry(f"{TOP}/..\\a"),
    "unrecorded": _entry(f"{TOP}/a"),
    "long name": _entry(f"{TOP}/" + "a" * 300),
    "newline": _entry(f"{TOP}/a\nb"),
}


@pytest.mark.parametrize("add", HOSTILE.values(), ids=list(HOSTILE))
@pytest.mark.parametrize("first", [True, False])
def test_a_hostile_archive_is_refused_and_leaves_nothing(
    packed: Path, tmp_path: Path, add: Callable[[tarfile.TarFile], None], first: bool
) -> None:
    crafted = tmp_path / "crafted.tar"
    with tarfile.open(packed) as good, tarfile.open(crafted, "w", format=tarfile.GNU_FORMAT) as archive:
        if first:
            add(archive)
        for member in good:
            archive.addfile(member, good.extractfile(member))
        if not first:
            add(archive)
    with pytest.raises(BundleError) as caught:
        unpack_bundle(crafted, tmp_path / "device")
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "device").iterdir()) == []


def test_an_archive_cut_short_or_followed_by_more_is_refused(packed: Path, tmp_path: Path) -> None:
    whole = packed.read_bytes()
    for content in (b"", whole[:100], whole[:2000], whole[: len(whole) // 2], whole + b"x", b"no tar" * 1000):
        packed.write_bytes(content)
        with pytest.raises(BundleError):
            unpack_bundle(packed, tmp_path / "device")
        assert list((tmp_path / "device").iterdir()) == []


def test_a_header_that_claims_more_than_there_is_writes_no_more(packed: Path, tmp_path: Path) -> None:
    entry = tarfile.TarInfo(f"{TOP}/manifest.json")
    for size in (1 << 33, 1 << 60):
        entry.size = size
        packed.write_bytes(entry.tobuf(tarfile.GNU_FORMAT) + b"x" * 512)
        with pytest.raises(BundleError):
            unpack_bundle(packed, tmp_path / "device")


def test_only_the_digest_asked_for_is_unpacked(bundles: Path, packed: Path, tmp_path: Path) -> None:
    digest = open_bundle(bundles / TOP).manifest.digest
    with pytest.raises(BundleError, match="another bundle"):
        unpack_bundle(packed, tmp_path / "no", digest="1" * 64)
    assert unpack_bundle(packed, tmp_path / "yes", digest=digest).manifest.digest == digest
