import fcntl
import os
import time
from pathlib import Path

import pytest

from ipj_edge.conversion.publish import check_free, publish, sweep, workspace
from ipj_edge.errors import DestinationError


def _build(destination: Path, text: str, *, force: bool = False) -> None:
    with workspace(destination) as folder:
        (folder / "model.bin").write_text(text)
        publish(folder, destination, force=force)


def test_a_bundle_appears_whole_and_nothing_else_stays(tmp_path: Path) -> None:
    _build(tmp_path / "out" / "net.ipj", "one")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["net.ipj"]


def test_an_error_while_building_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with workspace(tmp_path / "net.ipj") as folder:
            (folder / "half").write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_taken_destination_is_refused_and_kept(tmp_path: Path) -> None:
    _build(tmp_path / "net.ipj", "one")
    with pytest.raises(DestinationError, match="--force"):
        check_free(tmp_path / "net.ipj", force=False)
    with pytest.raises(DestinationError, match="--force"):
        _build(tmp_path / "net.ipj", "two")
    assert (tmp_path / "net.ipj" / "model.bin").read_text() == "one"


def test_force_replaces_the_whole_bundle(tmp_path: Path) -> None:
    _build(tmp_path / "net.ipj", "one")
    (tmp_path / "net.ipj" / "old-only").write_text("x")
    _build(tmp_path / "net.ipj", "two", force=True)
    assert [path.name for path in (tmp_path / "net.ipj").iterdir()] == ["model.bin"]
    assert [path.name for path in tmp_path.iterdir()] == ["net.ipj"]


def test_what_a_killed_run_left_is_removed_and_a_running_one_is_not(tmp_path: Path) -> None:
    dead, alive = tmp_path / ".net.ipj.tmp-dead", tmp_path / ".net.ipj.tmp-alive"
    for folder in (dead, alive):
        (folder / "built").mkdir(parents=True)
        (folder / "lock").touch()
    with (alive / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sweep(tmp_path / "net.ipj")
    assert not dead.exists()
    assert alive.exists()


def test_a_bundle_moved_aside_by_a_killed_replacement_comes_back(tmp_path: Path) -> None:
    left = tmp_path / ".net.ipj.tmp-dead"
    (left / "replaced").mkdir(parents=True)
    (left / "replaced" / "model.bin").write_text("old")
    (left / "lock").touch()
    sweep(tmp_path / "net.ipj")
    assert (tmp_path / "net.ipj" / "model.bin").read_text() == "old"


def test_a_folder_that_was_not_locked_yet_is_left_alone_for_a_minute(tmp_path: Path) -> None:
    young = tmp_path / ".net.ipj.tmp-young"
    young.mkdir()
    sweep(tmp_path / "net.ipj")
    assert young.exists()
    os.utime(young, (time.time() - 120, time.time() - 120))
    sweep(tmp_path / "net.ipj")
    assert not young.exists()


def test_a_destination_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DestinationError, match="cannot write"):
        _build(tmp_path / "file" / "net.ipj", "one")
