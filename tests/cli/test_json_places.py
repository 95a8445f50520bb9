"""JSON of every command: a place that cannot be written is one line and exit code 2, and NaN is not JSON."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ipj_edge.cli.printing import console as _console
from ipj_edge.errors import DataError


@pytest.mark.parametrize(
    "words",
    [
        ("targets",),
        ("doctor",),
        ("measure", "--probe", "none", "--", "true"),
        # Refused before anything is loaded, let alone tuned or converted for minutes.
        ("exits", "tune", "nothing.ipj", "--data", "nothing.npz"),
        ("convert", "nothing.onnx", "--target", "tflite-cpu", "-o", "dist"),
        ("compress", "nothing.toml", "-o", "run"),
    ],
)
def test_a_place_that_cannot_be_written_is_named_in_one_line(
    tmp_path: Path, ipj_edge_here: Callable, words: tuple[str, ...]
) -> None:
    ran = ipj_edge_here(*words, "--json", tmp_path / "none" / "x.json") if words[-1] != "true" else ipj_edge_here(
        *words[:3], "--json", tmp_path / "none" / "x.json", *words[3:]
    )  # fmt: skip
    assert ran.code == 2, ran
    assert "cannot write" in ran.err
    assert "Traceback" not in ran.err


def test_a_number_that_is_not_finite_is_refused_and_its_place_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"\[0\]\.logits\[1\] is no finite number"):
        _console.write_json([{"logits": [1.0, float("nan")]}], str(tmp_path / "x.json"))
    assert not (tmp_path / "x.json").exists()
