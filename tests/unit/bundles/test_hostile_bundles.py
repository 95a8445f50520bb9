"""A bundle of a stranger: nothing outside its folder is read or written, and what cannot be right is one line."""

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import ipj_edge
from ipj_edge.bundles.bundle import open_bundle, record_files, write_manifest
from ipj_edge.bundles.seal import sealed
from ipj_edge.errors import BundleError
from ipj_edge.runtime.golden import read_golden, write_golden


@pytest.fixture
def copy(bundles: Path, tmp_path: Path) -> Path:
    """A bundle to tamper with."""
    return Path(shutil.copytree(bundles / "digits.openvino-cpu.int8.ipj", tmp_path / "stranger.ipj"))


def _write(folder: Path, manifest: Any) -> None:
    """Write a manifest of plain values, sealed as a stranger would seal it."""

    class Loose(msgspec.Struct, dict=True):
        pass

    fields = msgspec.defstruct("Loose", [(name, Any) for name in manifest])
    (folder / "manifest.json").write_bytes(sealed(fields(**manifest)))


def _set(*path: Any) -> Callable[[dict[str, Any]], None]:
    *keys, last, value = path

    def change(manifest: Any) -> None:
        for key in keys:
            manifest = manifest[key]
        manifest[last] = value

    return change


IMPOSSIBLE = {
    "no outputs": _set("outputs", []),
    "no stages": _set("stages", []),
    "unknown instruction set": _set("requires", "isa", "z80"),
    "schema 0": _set("schema_version", 0),
    "schema -5": _set("schema_version", -5),
    "golden not recorded": lambda m: m.update(files=[f for f in m["files"] if f["path"] != "golden.npz"]),
    "batch 0": _set("batch", "max", 0),
    "batch -1": _set("batch", "static", -1),
    "huge batch": _set("batch", "max", 10**12),
    "unknown dtype": _set("inputs", 0, "dtype", "float31"),
    "structured dtype": _set("inputs", 0, "dtype", "i4,i4"),
    "unknown port dtype": _set("stages", 0, "takes", 0, "dtype", "V8"),
    "empty takes": _set("stages", 0, "takes", []),
    "empty adds": _set("stages", 0, "adds", []),
    "NUL in a path": _set("files", 0, "path", "model\0.bin"),
    "empty path": _set("files", 0, "path", ""),
    "absolute path": _set("files", 0, "path", "/etc/passwd"),
    "doubled path": lambda m: m["files"].append(m["files"][0]),
    "a path with dots": _set("files", 0, "path", "a/./b"),
    "negative size": _set("files", 0, "size_bytes", -1),
    "giant size": _set("files", 0, "size_bytes", 1 << 60),
    "negative axis": _set("inputs", 0, "batch_axis", -1),
    "axis beyond": _set("inputs", 0, "batch_axis", 9),
    "negative shape": _set("inputs", 0, "shape", ["batch", -1, 8, 8]),
    "giant shape": _set("inputs", 0, "shape", ["batch", 1 << 40, 1 << 40, 8]),
    "scale 0": _set("stages", 0, "takes", 0, "quantization", {"scale": 0.0, "zero_point": 0}),
    "no golden samples": _set("golden_samples", 0),
    "more golden samples": _set("golden_samples", 999),
    "unknown target": _set("target", "toaster"),
    "negative tolerance": _set("parity", "tolerance", -1.0),
    "a library to load": _set(
        "requires",
        "providers",
        [{"name": "TensorrtExecutionProvider", "options": {"trt_extra_plugin_lib_paths": "/x"}}],
    ),
    "std 0": _set("preprocessing", "image", "std", [0.0]),
    "image of nobody": lambda m: m["preprocessing"].update(nobody=m["preprocessing"]["image"]),
    "records itself": _set("files", 0, "path", "manifest.json"),
    "records its exits": _set("files", 0, "path", "exits.json"),
}


@pytest.mark.parametrize("change", IMPOSSIBLE.values(), ids=list(IMPOSSIBLE))
def test_an_impossible_manifest_is_one_line(copy: Path, change: Callable[[dict[str, Any]], None]) -> None:
    manifest = json.loads((copy / "manifest.json").read_text())
    change(manifest)
    _write(copy, manifest)
    with pytest.raises(BundleError) as caught:
        ipj_edge.verify(copy)
    assert "\n" not in str(caught.value)


def test_deep_nesting_is_one_line(copy: Path) -> None:
    (copy / "manifest.json").write_text('{"schema_version": 1, "notes": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(BundleError):
        open_bundle(copy)


def test_a_manifest_beyond_its_limit_is_refused(copy: Path) -> None:
    with (copy / "manifest.json").open("ab") as file:
        file.truncate(1 << 32)
    with pytest.raises(BundleError, match="larger than 16 MiB"):
        open_bundle(copy)


@pytest.mark.parametrize("name", ["stray.txt", ".hidden", "inner/stray.txt", "golden.npz.bak"])
def test_a_file_that_is_not_recorded_is_refused(copy: Path, name: str) -> None:
    (copy / name).parent.mkdir(exist_ok=True)
    (copy / name).write_text("who wrote this?")
    with pytest.raises(BundleError, match="does not record"):
        open_bundle(copy)


def test_what_a_killed_writer_left_of_its_own_files_voids_nothing(copy: Path) -> None:
    (copy / f".exits.json.{'0a' * 8}.part").write_text("half")
    open_bundle(copy)


@pytest.mark.parametrize("name", ["model.bin", "golden.npz", "manifest.json", "exits.json", "verified.json"])
@pytest.mark.parametrize("kind", ["link", "pipe", "socket", "folder"])
def test_nothing_but_plain_files_is_opened(copy: Path, tmp_path: Path, name: str, kind: str) -> None:
    place = copy / name
    if place.exists():
        shutil.move(place, tmp_path / "kept")
    if kind == "link":
        place.symlink_to(tmp_path / "kept")
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    else:
        here = Path.cwd()
        os.chdir(copy)  # the address of a socket is short
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(name)
        os.chdir(here)
    with pytest.raises(BundleError):
        ipj_edge.verify(copy)


def test_a_sub_folder_that_is_a_link_is_not_followed(copy: Path, tmp_path: Path) -> None:
    (copy / "inner").mkdir()
    (copy / "model.bin").rename(copy / "inner" / "model.bin")
    manifest = open_bundle(copy, check_files=False).manifest
    write_manifest(copy, msgspec.structs.replace(manifest, files=record_files(copy)))
    open_bundle(copy)
    (copy / "inner").rename(tmp_path / "outside")
    (copy / "inner").symlink_to(tmp_path / "outside")
    with pytest.raises(BundleError):
        open_bundle(copy)


def test_a_planted_link_is_never_written_through(copy: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (copy / f".verified.json.{os.getpid()}").symlink_to(victim)
    with pytest.raises(BundleError):
        ipj_edge.verify(copy)
    assert victim.read_text() == "precious"


def _swap_golden(folder: Path, inputs: dict[str, np.ndarray], outputs: dict[str, np.ndarray]) -> None:
    write_golden(folder, inputs, outputs)
    manifest = open_bundle(folder, check_files=False).manifest
    write_manifest(folder, msgspec.structs.replace(manifest, files=record_files(folder)))


def test_golden_answers_have_to_be_those_of_the_manifest(copy: Path) -> None:
    inputs, outputs = read_golden(copy)
    for wrong in (
        {},
        {"other": outputs["logits"]},
        {"logits": outputs["logits"][:0]},
        {"logits": outputs["logits"][:1]},
    ):
        _swap_golden(copy, inputs, wrong)
        with pytest.raises(BundleError, match=r"golden\.npz"):
            ipj_edge.verify(copy)
    _swap_golden(copy, inputs, {"logits": outputs["logits"].astype(np.float64)})
    with pytest.raises(BundleError, match="float64"):
        ipj_edge.verify(copy)


def test_only_the_bundle_with_the_digest_asked_for_is_accepted(copy: Path) -> None:
    digest = open_bundle(copy).manifest.digest
    with ipj_edge.load(copy, digest=digest):
        pass
    ipj_edge.verify(copy, digest=digest)
    other = "0" * 64
    with pytest.raises(BundleError, match="another bundle"):
        ipj_edge.load(copy, digest=other)
    with pytest.raises(BundleError, match="another bundle"):
        ipj_edge.verify(copy, digest=other)


def test_a_clone_needs_no_working_directory(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bundle.parent)
    with ipj_edge.load(bundle.name, threads=1) as model:
        zeros = np.zeros((1, 1, 8, 8), np.float32)
        wanted = model.run(zeros).outputs["logits"]
        monkeypatch.chdir("/")
        with model.clone() as clone:
            np.testing.assert_array_equal(clone.run(zeros).outputs["logits"], wanted)


@pytest.mark.parametrize("how", ["overwritten", "truncated"])
def test_what_was_hashed_is_what_runs(bundle: Path, tmp_path: Path, how: str) -> None:
    """At batch 1 as loaded, and later at batch 4, for which an engine may compile anew."""
    copy = Path(shutil.copytree(bundle, tmp_path / "changing.ipj"))
    images = np.random.default_rng(0).random((4, 1, 8, 8)).astype(np.float32)
    with ipj_edge.load(bundle, threads=1) as model:
        wanted = [model.run(images[:rows]).outputs["logits"] for rows in (1, 4)]
    with ipj_edge.load(copy, threads=1) as model:
        for file in copy.iterdir():
            file.write_bytes(b"\x5a" * file.stat().st_size if how == "overwritten" else b"")
        for rows, expected in zip((1, 4), wanted, strict=True):
            np.testing.assert_array_equal(model.run(images[:rows]).outputs["logits"], expected)
        with model.clone() as clone:
            np.testing.assert_array_equal(clone.run(images).outputs["logits"], wanted[1])


def test_a_program_changed_after_the_bundle_was_opened_is_caught(bundle: Path, tmp_path: Path) -> None:
    from ipj_edge.runtime.model import open_model
    from ipj_edge.values import Settings

    copy = Path(shutil.copytree(bundle, tmp_path / "changing.ipj"))
    for opened in (open_bundle(copy), open_bundle(copy, leave_programs=True)):
        file = copy / opened.manifest.stages[0].file
        whole = file.read_bytes()
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(BundleError, match="is damaged"):
            open_model(opened, Settings(threads=1))
        file.write_bytes(whole)


def test_without_sealed_memory_a_private_copy_is_loaded(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An old kernel, as a kernel says it: no such system call."""

    def refused(*_: object) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "memfd_create", refused)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    caplog.set_level("INFO")
    zeros = np.zeros((1, 1, 8, 8), np.float32)
    with ipj_edge.load(bundle, threads=1) as model:
        assert model.run(zeros).outputs["logits"].shape == (1, 10)
    assert "Function not implemented" in caplog.text
    del model
    assert not list(tmp_path.glob("ipj-edge-*"))
