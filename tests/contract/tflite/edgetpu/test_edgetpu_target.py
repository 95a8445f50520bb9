"""Target edgetpu from source to device: a fake compiler, a fake libedgetpu, and a pair of files the real one made."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ipj_edge import load
from ipj_edge.bundles.bundle import open_bundle
from ipj_edge.bundles.device_proof import read_proof
from ipj_edge.bundles.placement import read_placement
from ipj_edge.errors import ConversionError, TargetUnavailableError, UnsupportedError
from ipj_edge.plugins import load_target
from ipj_edge.runtime.golden import read_golden
from ipj_edge.runtime.model import open_model
from ipj_edge.values import Settings

pytestmark = pytest.mark.data
_HERE = Path(__file__).parent
# What version 16 prints about the pair; the figures of memory are made up.
_LOG = """Edge TPU Compiler version 16.0.384591198
Started a compilation timeout timer of 180 seconds.

Model compiled successfully in 270 ms.

Input model: model.tflite
Input size: 513.28KiB
Output model: model_edgetpu.tflite
Output size: 782.67KiB
On-chip memory used for caching model parameters: 521.75KiB
On-chip memory remaining for caching model parameters: 7.13MiB
Off-chip memory used for streaming uncached model parameters: {off_chip}
Number of Edge TPU subgraphs: 1
Total number of operations: 31
Operation log: model_edgetpu.log
See the operation log file for individual operation details.

Operator                       Count      Status

CONV_2D                        15         Mapped to Edge TPU
DEPTHWISE_CONV_2D              13         Mapped to Edge TPU
AVERAGE_POOL_2D                1          Mapped to Edge TPU
RESHAPE                        1          Mapped to Edge TPU
SOFTMAX                        1          Mapped to Edge TPU
Compilation child process completed within timeout period.
Compilation succeeded!
"""


@pytest.fixture
def whole(data_folder: Path) -> Path:
    """A uint8 network as it was before it was compiled."""
    return data_folder / "models/coral/mobilenet_v1_0.25_128_quant.tflite"


@pytest.fixture
def compiler(data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put an edgetpu_compiler on PATH that gives back a compiled file: ``compiler()``."""

    def install(compiled: str = "mobilenet_v1_0.25_128_quant_edgetpu", off_chip: str = "0.00B") -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "log").write_text(_LOG.format(off_chip=off_chip))
        program = folder / "edgetpu_compiler"
        made = data_folder / f"models/coral/{compiled}.tflite"
        program.write_text(
            f'#!/bin/sh\n[ "$1" = -s ] && [ "$2" = -o ] || exit 2\n'
            f'cp {made} "$3/$(basename "$4" .tflite)_edgetpu.tflite"\ncat {folder / "log"}\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)

    return install


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a fake libedgetpu.so.1."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to build the fake libedgetpu with")
    folder = tmp_path_factory.mktemp("edgetpu")
    source, library = _HERE / "fake_edgetpu.c", folder / "libedgetpu.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    return folder


class Device:
    """A machine with a fake Edge TPU: runs ``ipj-edge`` on it."""

    def __init__(self, library: Path, answers: Path) -> None:
        self._library, self.answers, self.devices = library, answers, "1"

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(self._library),
            "FAKE_EDGETPU": self.devices,
            "FAKE_EDGETPU_ANSWERS": str(self.answers),
        }
        command = [sys.executable, "-m", "ipj_edge", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)

    def learn(self, bundle: Path) -> None:
        """Record what the stand-in answers to the golden inputs: the fake device repeats it."""
        opened = open_bundle(bundle)
        inputs, _ = read_golden(bundle)
        with open_model(opened, Settings(threads=1), on="tflite-cpu") as model:
            values = model.run(inputs).outputs[opened.manifest.outputs[0].name]
        quantization = opened.manifest.stages[0].adds[0].quantization
        stored = np.rint(values / quantization.scale) + quantization.zero_point
        self.answers.write_bytes(stored.astype(np.uint8).tobytes())


@pytest.fixture
def device(fake_library: Path, tmp_path: Path) -> Device:
    return Device(fake_library, tmp_path / "answers")


def test_without_the_compiler_a_bundle_is_published_flagged_and_mapped_by_the_table(whole, converted):
    bundle = converted(whole, "edgetpu")
    manifest = open_bundle(bundle).manifest
    assert bundle.name == "mobilenet_v1_0.25_128_quant.edgetpu.int8.ipj"
    assert manifest.parity.verified_on == "proxy:tflite-cpu"
    assert any("not compiled" in note for note in manifest.notes)
    placement = read_placement(bundle)
    assert placement.found_by == "table"
    assert len(placement.operators) == 31
    assert "placement.json" in {record.path for record in manifest.files}


def test_with_the_compiler_the_bundle_holds_both_files(whole, converted, compiler):
    compiler()
    bundle = converted(whole, "edgetpu")
    manifest = open_bundle(bundle).manifest
    (stage,) = manifest.stages
    assert (stage.file, stage.proxy_file) == ("model_edgetpu.tflite", "model.tflite")
    assert manifest.created_with["edgetpu_compiler"] == "16.0.384591198"
    assert (bundle / "model.tflite").read_bytes() == whole.read_bytes()
    placement = read_placement(bundle)
    assert placement.found_by == "compiler"
    assert placement.on_chip_bytes == round(521.75 * 1024)
    assert placement.share() == 1
    assert manifest.stages[0].takes[0].dtype == "uint8"


def test_streamed_weights_are_told(whole, converted, compiler):
    compiler(off_chip="1.22MiB")
    notes = open_bundle(converted(whole, "edgetpu")).manifest.notes
    assert any("1,279,263 bytes of weights" in note for note in notes)


def test_a_compiler_that_changes_what_the_model_takes_is_caught(whole, converted, compiler):
    compiler(compiled="keras_lstm_mnist_ptq_edgetpu")
    with pytest.raises(ConversionError, match="changed the inputs"):
        converted(whole, "edgetpu")


def test_a_dynamic_int8_file_is_no_edgetpu_file(data_folder, converted):
    with pytest.raises(UnsupportedError, match="full int8 only"):
        converted(data_folder / "models/mlperf_tiny/kws_ref_model_float32.tflite", "edgetpu")


def test_loading_without_the_library_says_what_to_install(whole, converted):
    with pytest.raises(TargetUnavailableError, match=r"libedgetpu\.so\.1 is not installed: install libedgetpu1-std"):
        load(converted(whole, "edgetpu"))


def test_the_host_s_sensors_are_no_boundary_of_the_edge_tpu():
    assert load_target("edgetpu").boundaries == ("board", "wall")


def test_without_a_device_the_library_is_asked_and_the_refusal_says_what_to_do(whole, converted, device):
    device.devices = "0"
    ran = device.run("run", converted(whole, "edgetpu"), _HERE / "none.png")
    assert ran.returncode == 6
    assert "finds no Edge TPU" in ran.stderr
    assert "USB Accelerator" in ran.stderr


def test_a_device_in_use_is_a_refusal(whole, converted, compiler, device):
    compiler()
    device.devices = "busy"
    ran = device.run("verify", converted(whole, "edgetpu"))
    assert ran.returncode == 6
    assert "is another program using it" in ran.stderr


def test_a_bundle_that_was_not_compiled_does_not_run_on_the_host_in_silence(whole, converted, device):
    ran = device.run("verify", converted(whole, "edgetpu"))
    assert ran.returncode == 6
    assert "was made without edgetpu_compiler" in ran.stderr


def test_verify_on_the_device_ends_the_warning_of_inspect_and_bench(whole, converted, compiler, device):
    compiler()
    bundle = converted(whole, "edgetpu")
    device.learn(bundle)
    before = device.run("inspect", bundle)
    assert "proven on tflite-cpu only, never on 'edgetpu' itself" in before.stderr
    assert "31 of 31 operators on the accelerator, 100.0% of the MACs; decided by edgetpu_compiler" in before.stdout
    benched = device.run(*bench(bundle))
    assert "proven on tflite-cpu only" in json.loads(benched.stdout)["results"][0]["warnings"][-1]
    verified = device.run("verify", bundle)
    assert verified.returncode == 0, verified.stderr
    assert "EdgeTPU" in verified.stdout
    assert read_proof(open_bundle(bundle)) is not None
    after = device.run("inspect", bundle)
    assert "verified on the device" in after.stdout
    assert "proven on tflite-cpu only" not in after.stderr
    benched = device.run(*bench(bundle))
    assert not any("tflite-cpu" in warning for warning in json.loads(benched.stdout)["results"][0]["warnings"])


def test_wrong_answers_of_the_device_are_found_and_leave_the_warning(whole, converted, compiler, device):
    compiler()
    bundle = converted(whole, "edgetpu")
    device.learn(bundle)
    device.answers.write_bytes(device.answers.read_bytes()[::-1])
    assert device.run("verify", bundle).returncode == 4
    assert "proven on tflite-cpu only" in device.run("inspect", bundle).stderr


def test_a_proof_of_another_bundle_does_not_count(whole, converted, compiler, device):
    compiler()
    bundle = converted(whole, "edgetpu")
    device.learn(bundle)
    device.run("verify", bundle)
    proof = (bundle / "verified.json").read_text()
    again = converted(whole, "edgetpu", tolerance=0.5)
    (again / "verified.json").write_text(proof)
    assert read_proof(open_bundle(again)) is None


def bench(bundle: Path) -> list[object]:
    return ["bench", bundle, "--windows", 1, "--window", "0.05", "--probe", "none", "--json", "-"]
