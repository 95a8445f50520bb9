"""What a converter's own trouble is called: not the fault of the place that bundles are written to."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ipj_edge.conversion import build as building
from ipj_edge.conversion.plan.request import ConvertRequest
from ipj_edge.errors import UnsupportedError


def _convert(folder: Path, raised: Exception) -> None:
    def convert(_task: object) -> None:
        raise raised

    request = ConvertRequest(source="net.onnx", targets=("t",), into=folder)
    prepared: Any = SimpleNamespace(request=request, source=None, calibration=None, options=request.options)
    converter: Any = SimpleNamespace(name="to-t", convert=convert)
    building._convert(prepared, converter, "t", "fp32", folder)


def test_a_tool_that_a_converter_does_not_find_is_no_full_disk(tmp_path: Path) -> None:
    missing = FileNotFoundError(errno.ENOENT, "No such file or directory", "/opt/their/tool")
    with pytest.raises(
        UnsupportedError, match=r"'to-t' cannot convert this model: FileNotFoundError: .*/opt/their/tool"
    ):
        _convert(tmp_path, missing)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_a_folder_that_cannot_be_written_is_told_as_it_is(tmp_path: Path, code: int) -> None:
    with pytest.raises(OSError, match="told"):
        _convert(tmp_path, OSError(code, "told", str(tmp_path / "model.bin")))
