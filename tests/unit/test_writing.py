"""Files that are on disk whole or not at all."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ipj_edge.errors import DestinationError
from ipj_edge.writing import replacing, write_file


def test_a_file_is_written_and_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    write_file(tmp_path / "a.json", b"\x00old")
    write_file(tmp_path / "a.json", "µ new\n")
    assert (tmp_path / "a.json").read_bytes() == "µ new\n".encode()
    assert os.listdir(tmp_path) == ["a.json"]


def write_half(path: Path, failure: BaseException) -> None:
    with replacing(path) as stream:
        stream.write(b"half")
        raise failure


@pytest.mark.parametrize("failure", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)])
def test_a_failure_on_the_way_leaves_the_old_file_and_no_draft(tmp_path: Path, failure: BaseException) -> None:
    write_file(tmp_path / "a", "old")
    with pytest.raises(type(failure)):
        write_half(tmp_path / "a", failure)
    assert (tmp_path / "a").read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_link_in_the_place_of_the_file_is_replaced_and_never_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for link, to in (("known", victim), ("dangling", tmp_path / "nothing")):
        (tmp_path / link).symlink_to(to)
        write_file(tmp_path / link, "new")
        assert not (tmp_path / link).is_symlink()
        assert (tmp_path / link).read_text() == "new"
    assert victim.read_text() == "mine"
    assert not (tmp_path / "nothing").exists()


def test_a_folder_a_pipe_and_a_device_are_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/null")
    for name in ("folder", "pipe", "device"):
        with pytest.raises(DestinationError, match=f"{name}: it is a"):
            write_file(tmp_path / name, "new")
    assert sorted(os.listdir(tmp_path)) == ["device", "folder", "pipe"]


def test_a_place_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "missing" / "a", tmp_path / "file" / "a", tmp_path / ("n" * 256)):
        with pytest.raises(DestinationError, match="cannot write") as raised:
            write_file(place, "new")
        assert "\n" not in str(raised.value)
    assert os.listdir(tmp_path) == ["file"]


def test_a_full_disk_is_one_clear_line(tmp_path: Path) -> None:
    with (
        pytest.raises(DestinationError, match="No space left"),
        replacing(tmp_path / "a"),
        open("/dev/full", "wb") as full,
    ):
        full.write(b"x")
    assert not os.listdir(tmp_path)


def test_a_name_as_long_as_the_disk_takes_is_written(tmp_path: Path) -> None:
    write_file(tmp_path / ("ä" * 127), "new")
    assert (tmp_path / ("ä" * 127)).read_text() == "new"


def test_a_file_has_the_mode_of_an_ordinary_one(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from ipj_edge.writing import write_file\n"
        "os.umask(0o027); write_file(Path(sys.argv[1]), 'x')"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "a")], check=True)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640
