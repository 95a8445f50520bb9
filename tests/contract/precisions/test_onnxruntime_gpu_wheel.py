"""The real onnxruntime-gpu wheel on a machine without a GPU, in an environment of its own.

onnxruntime and onnxruntime-gpu overwrite each other's files, so it is never installed beside the CPU one. Name an
environment that has it in IPJ_EDGE_ORT_GPU_PYTHON, or let the test make one (300 MB from the package index).
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import ipj_edge
import ipj_edge_targets
from ipj_edge_targets.nvidia_driver import why_no_gpu

WHEEL = "onnxruntime-gpu==1.31.1"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not why_no_gpu(), reason="a GPU is here: see tests/hardware"),
]


@pytest.fixture(scope="module")
def gpu_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    named = os.environ.get("IPJ_EDGE_ORT_GPU_PYTHON")
    if named:
        return Path(named)
    folder = tmp_path_factory.mktemp("gpu")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    got = subprocess.run([*pip, WHEEL, "msgspec", "click", "rich"], capture_output=True, text=True, check=False)
    if got.returncode != 0:
        pytest.skip(f"{WHEEL} cannot be had here: {got.stderr.strip().splitlines()[-1]}")
    return python


@pytest.fixture
def run(gpu_python: Path, tmp_path: Path):
    """Run ipj-edge from this tree in the other environment, with the entry points of the one that is installed."""
    site = tmp_path / "site"
    site.mkdir()
    for module in (ipj_edge, ipj_edge_targets):
        name = module.__name__
        (site / name).symlink_to(Path(str(module.__file__)).parent)
    info = site / "ipj_edge-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ipj-edge\nVersion: 0\n")
    (info / "entry_points.txt").write_text(
        "[ipj_edge.targets]\n"
        "onnxruntime-cpu = ipj_edge_targets.onnxruntime_cpu:OnnxruntimeCpu\n"
        "onnxruntime-gpu = ipj_edge_targets.onnxruntime_gpu:OnnxruntimeGpu\n"
    )

    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(site)}
        command = [str(gpu_python), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    return call


def test_a_bundle_is_refused_in_one_line_with_exit_code_6(made, run):
    path = made("conv", "onnxruntime-gpu", "fp16").path
    ran = run("-m", "ipj_edge", "verify", path)
    assert ran.returncode == 6, ran
    assert ran.stdout == ""
    (line,) = ran.stderr.splitlines()
    assert "no NVIDIA driver" in line


def test_providers_that_are_compiled_in_and_do_not_load_are_no_gpu(made, run):
    """With the driver's answer taken for granted, onnxruntime itself has to refuse: it would run on the CPU."""
    path = made("conv", "onnxruntime-gpu", "fp32").path
    code = (
        "import sys, onnxruntime, ipj_edge\n"
        "from ipj_edge_targets import onnxruntime_gpu\n"
        "assert 'CUDAExecutionProvider' in onnxruntime.get_available_providers()\n"
        "onnxruntime_gpu.why_no_gpu = lambda: ''\n"
        "try:\n    ipj_edge.load(sys.argv[1])\n"
        "except ipj_edge.errors.TargetUnavailableError as error:\n    print(error.exit_code, error)\n"
    )
    ran = run("-c", code, path)
    assert ran.returncode == 0, ran
    (line,) = ran.stdout.splitlines()
    assert line.startswith("6 part of 'model.onnx' would run on the CPU"), line
    assert ran.stderr == "", "the engine's own log lines are kept back"


def test_python_is_not_this_one(gpu_python):
    assert Path(sys.executable).resolve().parent != Path(gpu_python).parent
