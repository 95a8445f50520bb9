"""Fixtures shared by the tests: the public data folder, outside plugins, the command line."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def _data_folder() -> Path | None:
    named = os.environ.get("IPJ_EDGE_DATA")
    candidates = [Path(named)] if named else [parent / "shared" / "data" for parent in ROOT.parents]
    return next((folder for folder in candidates if (folder / "README.md").is_file()), None)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of public models and data; tests that need it skip with a reason where it is missing."""
    folder = _data_folder()
    if folder is None:
        pytest.skip("the folder of public models and data is missing (set IPJ_EDGE_DATA)")
    return folder


@pytest.fixture
def install_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], None]:
    """Install an outsider's plugin for one test, through a real distribution on the path.

    Call it with the entry-point group, the line ``name = module:attribute`` and the module's code.
    """
    folder = tmp_path / "outsiders"

    def install(group: str, line: str, code: str) -> None:
        module = line.partition("=")[2].strip().partition(":")[0]
        folder.mkdir(exist_ok=True)
        (folder / f"{module}.py").write_text(textwrap.dedent(code))
        info = folder / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{line}\n")
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.setenv("PYTHONPATH", str(folder))

    return install


class Ran:
    """What a command line ended with."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def __repr__(self) -> str:
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


@pytest.fixture(scope="session")
def ipj_edge_cli() -> Callable[..., Ran]:
    """Run ``ipj-edge`` in a fresh process as a user would."""

    def run(*arguments: object, cwd: Path | None = None, timeout: float = 300) -> Ran:
        child = subprocess.run(
            [sys.executable, "-m", "ipj_edge", *map(str, arguments)],
            capture_output=True, text=True, timeout=timeout, cwd=cwd, check=False,
        )  # fmt: skip
        return Ran(child.returncode, child.stdout, child.stderr)

    return run
