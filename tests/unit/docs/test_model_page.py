"""The page of public models: every file is on it, and none ended without a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[3] / "docs" / "models.md"


@pytest.mark.data
def test_every_public_model_is_on_the_page(data_folder: Path):
    page = PAGE.read_text(encoding="utf-8")
    models = data_folder / "models"
    files = [file for file in models.rglob("*") if file.suffix in (".tflite", ".onnx", ".pt2")]
    assert len(files) > 40
    assert not [str(file) for file in files if f"`{file.relative_to(models)}`" not in page]


def test_no_model_ended_in_a_bug_of_ours():
    page = PAGE.read_text(encoding="utf-8")
    assert "exit 1 " not in page
    assert "no reason was given" not in page
    assert "Traceback" not in page
