"""Fixtures shared by the tests: outside plugins, the digits example and its bundles; the others are in fixtures/."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from command_line import Ran

pytest_plugins = ["public_models", "command_line", "made_once", "shares"]

ROOT = Path(__file__).resolve().parent.parent

# Tests that import onnxruntime themselves, outside `ipj_edge.plugins.needs`, report nothing either.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
# Tests run in one process a core: a training with threads of its own would only wait for the others.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Continuous integration tries the same examples every time; developers' machines go on looking for new ones.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


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


TARGETS = ("openvino-cpu", "onnxruntime-cpu", "tflite-cpu")
PRECISIONS = ("fp32", "int8")


@pytest.fixture(scope="session")
def digits(made_once: Callable[..., Path]) -> Path:
    """The digits example, trained: weights, labels, preprocessing, calibration and test data, an image."""

    def train(folder: Path) -> None:
        subprocess.run([sys.executable, ROOT / "examples" / "digits.py", folder], check=True, capture_output=True)

    return made_once("digits", train)


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
def digits_converted(
    digits: Path, digits_arguments: list[str], ipj_edge_cli: Callable[..., Ran], made_once: Callable[..., Path]
) -> Path:
    """The digits example converted by the command line, with the accuracy gate: ``dist`` and ``convert.json``."""

    def convert(folder: Path) -> None:
        wanted = [part for target in TARGETS for part in ("--target", target)]
        wanted += [part for precision in PRECISIONS for part in ("--precision", precision)]
        gate = ["--data", digits / "test.npz", "--max-accuracy-drop", "1pp"]
        into = ["-o", folder / "dist", "--json", folder / "convert.json"]
        ran = ipj_edge_cli("convert", *digits_arguments, *gate, *wanted, *into)
        assert ran.code == 0, ran

    return made_once("digits-converted", convert)


@pytest.fixture(scope="session")
def bundles(digits_converted: Path) -> Path:
    """Folder of the digits bundles: every target at fp32 and int8."""
    return digits_converted / "dist"


@pytest.fixture(params=[f"digits.{target}.{precision}.ipj" for target in TARGETS for precision in PRECISIONS])
def bundle(bundles: Path, request: pytest.FixtureRequest) -> Path:
    """Each of the six digits bundles in turn."""
    return bundles / str(request.param)
