import json
import shutil
from pathlib import Path

import msgspec
import pytest

from ipj_edge.bundles.bundle import open_bundle, record_files, write_manifest
from ipj_edge.errors import BundleError


@pytest.fixture
def copy(bundles: Path, tmp_path: Path) -> Path:
    """A bundle to damage, copied to another place."""
    return Path(shutil.copytree(bundles / "digits.openvino-cpu.int8.ipj", tmp_path / "elsewhere.ipj"))


def test_a_copied_bundle_opens(copy: Path) -> None:
    manifest = open_bundle(copy).manifest
    assert manifest.name == "digits"
    assert {record.path for record in manifest.files} == {"model.xml", "model.bin", "golden.npz"}


def test_one_flipped_byte_in_any_file_is_found_and_the_file_is_named(copy: Path) -> None:
    for file in sorted(path for path in copy.rglob("*") if path.is_file()):
        whole = file.read_bytes()
        for position in (0, len(whole) // 2, len(whole) - 1):
            damaged = bytearray(whole)
            damaged[position] ^= 1
            file.write_bytes(damaged)
            with pytest.raises(BundleError, match=file.name):
                open_bundle(copy)
        file.write_bytes(whole)
    open_bundle(copy)


def test_every_byte_of_the_manifest_is_guarded(copy: Path) -> None:
    file = copy / "manifest.json"
    whole = file.read_bytes()
    for position in range(0, len(whole), 37):
        damaged = bytearray(whole)
        damaged[position] ^= 0x08
        file.write_bytes(damaged)
        with pytest.raises(BundleError, match=r"manifest\.json"):
            open_bundle(copy)


def test_a_missing_file_is_named(copy: Path) -> None:
    (copy / "model.bin").unlink()
    with pytest.raises(BundleError, match=r"model\.bin is missing"):
        open_bundle(copy)


def test_a_newer_schema_says_upgrade(copy: Path) -> None:
    file = copy / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest["schema_version"] = 99
    manifest["a_field_of_the_future"] = True
    file.write_text(json.dumps(manifest))
    with pytest.raises(BundleError, match=r"schema version 99.*upgrade ipj-edge"):
        open_bundle(copy)


def test_a_file_outside_the_bundle_is_refused(copy: Path) -> None:
    import msgspec

    manifest = open_bundle(copy).manifest
    strangers = tuple(msgspec.structs.replace(record, path="../" + record.path) for record in manifest.files)
    write_manifest(copy, msgspec.structs.replace(manifest, files=strangers))
    with pytest.raises(BundleError, match="outside the bundle"):
        open_bundle(copy)


def test_a_folder_that_is_no_bundle_says_so(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="is not a bundle"):
        open_bundle(tmp_path)
    with pytest.raises(BundleError, match="is not a bundle"):
        open_bundle(tmp_path / "nowhere")


def test_no_absolute_path_is_inside_any_file(bundle: Path, digits: Path) -> None:
    for file in (path for path in bundle.rglob("*") if path.is_file()):
        content = file.read_bytes()
        for trace in (str(digits), str(Path(__file__).parents[3]), str(Path.home()) + "/", "/tmp/", "site-packages"):
            assert trace.encode() not in content, (file, trace)


def test_a_program_that_is_none_of_the_recorded_files_is_refused(copy: Path) -> None:
    """Its bytes would run without anything vouching for them."""
    manifest = open_bundle(copy).manifest
    (copy / "other.xml").write_text("<net/>")
    stage = msgspec.structs.replace(manifest.stages[0], file="other.xml")
    write_manifest(copy, msgspec.structs.replace(manifest, stages=(stage,)))
    with pytest.raises(BundleError, match=r"runs 'other\.xml', which is none of the files it records"):
        open_bundle(copy)


def test_every_file_below_a_folder_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    for name in ("manifest.json", "model.bin", "inner/manifest.json"):
        (tmp_path / name).write_text("{}")
    assert [record.path for record in record_files(tmp_path)] == ["inner/manifest.json", "model.bin"]
