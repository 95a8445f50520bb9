"""Device installs are real: the wheel with one target's extra verifies, runs and benches a workstation's bundle."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent.parent

# What only a workstation needs: none of it may come with an engine.
WORKSTATION = {
    *("torch", "torchao", "onnx", "onnxscript", "nncf", "scipy", "scikit-learn", "litert-torch", "ai-edge-quantizer"),
    *("jax", "transformers", "tensorflow", "sympy", "pillow"),
}
ENGINES = {"openvino", "onnxruntime", "onnxruntime-gpu", "ai-edge-litert", "tflite-runtime"}
# What is installed beside the wheel, the engine it brings, and the target it runs. The last is what older boards have.
INSTALLS = {
    "openvino-cpu": (("[openvino-cpu]",), "openvino", "openvino-cpu"),
    "onnxruntime-cpu": (("[onnxruntime-cpu]",), "onnxruntime", "onnxruntime-cpu"),
    "tflite-cpu": (("[tflite-cpu]",), "ai-edge-litert", "tflite-cpu"),
    "tflite-runtime": (("", "tflite-runtime==2.14.0", "numpy<2"), "tflite-runtime", "tflite-cpu"),
}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as it would be published."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


class Installed:
    """A virtual environment with the wheel and one engine."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.python = folder, folder / "bin" / "python"

    def run(self, *command: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.folder / "bin" / command[0], *map(str, command[1:])],
            capture_output=True, text=True, cwd=self.folder, env={"HOME": str(self.folder)}, timeout=120, check=False,
        )  # fmt: skip

    def distributions(self) -> dict[str, str]:
        code = (
            "import json, importlib.metadata as m;"
            "print(json.dumps({d.metadata['Name'].lower(): d.version for d in m.distributions()}))"
        )
        found: dict[str, str] = json.loads(self.run("python", "-c", code).stdout)
        return found

    def size_bytes(self) -> int:
        (packages,) = self.folder.glob("lib/python*/site-packages")
        return sum(file.stat().st_size for file in packages.rglob("*") if file.is_file())


@pytest.fixture
def install(wheel: Path, tmp_path: Path) -> Callable[[str], Installed]:
    """Make a clean environment for one install, without even pip in it."""

    def made(name: str) -> Installed:
        if name == "tflite-runtime" and sys.version_info >= (3, 12):
            pytest.skip("tflite-runtime 2.14 has no wheel for this Python")
        folder = tmp_path / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        (extra, *others), _, _ = INSTALLS[name]
        pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "--disable-pip-version-check"]
        done = subprocess.run(
            [*pip, "install", "--quiet", f"{wheel}{extra}", *others], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return Installed(folder)

    return made


@pytest.mark.parametrize("name", INSTALLS)
def test_one_extra_is_enough_for_verify_run_and_bench(install, bundles, digits, capsys, record_property, name):
    machine, (_, engine, target) = install(name), INSTALLS[name]
    there = machine.distributions()
    assert not WORKSTATION & set(there), there
    assert ENGINES & set(there) == {engine}
    size = machine.size_bytes()
    record_property("installed_bytes", size)
    with capsys.disabled():
        sys.stdout.write(f"\n{name}: {engine} {there[engine]}, {len(there)} distributions, {size / 1e6:.0f} MB\n")
    for precision in ("fp32", "int8"):
        bundle = bundles / f"digits.{target}.{precision}.ipj"
        verified = machine.run("ipj-edge", "verify", bundle)
        assert verified.returncode == 0, verified.stderr
        assert engine in verified.stdout
        ran = machine.run("ipj-edge", "run", bundle, digits / "test.npz", "--json", "out.json")
        assert ran.returncode == 0, ran.stderr
        benched = machine.run(
            "ipj-edge", "bench", bundle, "--data", digits / "test.npz",
            "--windows", 2, "--window", 0.2, "--probe", "none", "--json", "-",
        )  # fmt: skip
        assert benched.returncode == 0, benched.stderr
        result = json.loads(benched.stdout)
        assert result["environment"]["memory"].endswith(" GiB")
        (entry,) = result["results"]
        assert entry["accuracy"]["value"] > 0.97
        assert entry["effective"][0]["engine"] == engine


def test_without_an_engine_the_message_is_the_command_that_installs_it(install, bundles, monkeypatch):
    monkeypatch.setitem(INSTALLS, "core", (("",), "", ""))
    machine = install("core")
    assert not (WORKSTATION | ENGINES) & set(machine.distributions())
    for target in ("openvino-cpu", "onnxruntime-cpu", "tflite-cpu"):
        ran = machine.run("ipj-edge", "verify", bundles / f"digits.{target}.fp32.ipj")
        assert ran.returncode == 6, ran.stderr
        assert f"pip install 'ipj-edge[{target}]'" in ran.stderr
    assert machine.run("ipj-edge", "--help").returncode == 0
    assert machine.run("ipj-edge", "targets").returncode == 0
    assert machine.run("ipj-edge", "doctor").returncode == 0
    refused = machine.run("ipj-edge", "convert", "net.onnx", "--target", "openvino-cpu", "-o", "dist")
    assert refused.returncode in (2, 6)
    assert "Traceback" not in refused.stderr
