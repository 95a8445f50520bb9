"""Fixtures shared by the tests: the public data folder, outside plugins, the command line."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent

# Tests that import onnxruntime themselves, outside `ipj_edge.plugins.needs`, report nothing either.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
# Tests run in one process a core: a training with threads of its own would only wait for the others.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Continuous integration tries the same examples every time; developers' machines go on looking for new ones.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


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


TARGETS = ("openvino-cpu", "onnxruntime-cpu", "tflite-cpu")
PRECISIONS = ("fp32", "int8")


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits example, trained: weights, labels, preprocessing, calibration and test data, an image."""
    folder = tmp_path_factory.mktemp("digits")
    subprocess.run([sys.executable, ROOT / "examples" / "digits.py", folder], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def digits_arguments(digits: Path) -> list[str]:
    """What ``ipj-edge convert`` needs to know of the digits example, besides target, precision and destination."""
    return [
        f"{ROOT / 'examples' / 'digits.py'}:build",
        "--weights", str(digits / "digits.safetensors"),
        "--input", "image:1x1x8x8",
        "--output", "logits",
        "--labels", str(digits / "digits.txt"),
        "--preprocess", str(digits / "digits.toml"),
        "--calibration", str(digits / "cal.npz"),
    ]  # fmt: skip


@pytest.fixture(scope="session")
def bundles(digits: Path, digits_arguments: list[str], ipj_edge_cli: Callable[..., Ran]) -> Path:
    """The digits example converted for every target at fp32 and int8, by the command line, with the accuracy gate."""
    wanted = [part for target in TARGETS for part in ("--target", target)]
    wanted += [part for precision in PRECISIONS for part in ("--precision", precision)]
    gate = ["--data", str(digits / "test.npz"), "--max-accuracy-drop", "1pp"]
    ran = ipj_edge_cli(
        "convert", *digits_arguments, *gate, *wanted, "-o", digits / "dist", "--json", digits / "convert.json"
    )
    assert ran.code == 0, ran
    return digits / "dist"


@pytest.fixture(params=[f"digits.{target}.{precision}.ipj" for target in TARGETS for precision in PRECISIONS])
def bundle(bundles: Path, request: pytest.FixtureRequest) -> Path:
    """Each of the six digits bundles in turn."""
    return bundles / str(request.param)
