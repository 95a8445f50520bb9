"""The run of the tests itself: what is made once, what was left out, which part took how long."""

from pathlib import Path

import pytest
from benchmarks.shared import public_data
from shares import lines, part_of


def test_each_part_has_its_share_and_the_rest_has_one() -> None:
    assert part_of("tests/fuzz/test_files.py::test_one") == "tests/fuzz"
    assert part_of("tests/unit/test_units.py::test_fuzz") == "everything else"
    said = lines({"tests/fuzz": 240.0, "everything else": 60.0})
    assert said == [
        "tests/fuzz: 4.0 minutes of tests, 2.0 on 2 cores; its share is 2",
        "everything else: 1.0 minutes of tests, 0.5 on 2 cores; its share is 10",
    ]


def test_a_thing_is_made_once_and_again_only_after_a_failure(made_once, request) -> None:
    name, calls = request.node.name, []

    def make(folder: Path) -> None:
        assert list(folder.iterdir()) == []
        calls.append(folder)
        (folder / "half").touch()
        if len(calls) == 1:
            raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        made_once(name, make)
    assert made_once(name, make) == made_once(name, make)
    assert len(calls) == 2


def test_a_folder_that_was_named_is_the_only_one_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPJ_EDGE_DATA", str(tmp_path))
    assert public_data.find() is None
    (tmp_path / "README.md").touch()
    assert public_data.find() == tmp_path


@pytest.mark.parametrize(
    "arguments",
    [("inspect", "nowhere.ipj"), ("inspect",), ("inspekt", "x"), ("inspect", "--no-such-option"), ("--help",)],
)
def test_the_command_line_in_process_answers_as_a_fresh_one(ipj_edge_cli, ipj_edge_here, arguments) -> None:
    fresh, here = ipj_edge_cli(*arguments), ipj_edge_here(*arguments)
    assert here.code == fresh.code
    assert here.err.splitlines()[-1:] == fresh.err.splitlines()[-1:]
    assert "Traceback" not in here.err
