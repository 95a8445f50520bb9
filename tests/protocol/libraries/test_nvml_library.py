"""The nvml probe through the real nvidia-ml-py and the real loader, on a fake libnvidia-ml built with gcc."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ipj_edge.testing.fake_nvml import FakeGpu, build, environment, has_compiler, write_state

pytest.importorskip("pynvml", reason="needs nvidia-ml-py")
pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs gcc")

A, B = "GPU-aaaa1111-0000", "GPU-bbbb2222-0000"

OPEN = """
import json, sys, time
from ipj_edge.errors import IpjEdgeError
from ipj_edge.values import ProbeOptions
from ipj_edge_probes.libraries.nvml import NvmlProbe
options = ProbeOptions(**json.loads(sys.argv[1]))
found = NvmlProbe().availability(options)
said = {"available": found.available, "reason": found.reason, "fix": found.fix}
try:
    counter = NvmlProbe().open(options)
    said["kind"] = type(counter).__name__
    said["note"] = counter.facts.note
    if said["kind"] == "NvmlCounter":
        asked_s = time.monotonic()
        start_s, _ = counter.read()
        read_s = time.monotonic() - asked_s
        time.sleep(float(sys.argv[2]))
        asked_s = time.monotonic()
        end_s, joules = counter.read()
        read_s += time.monotonic() - asked_s
        said |= {"joules": joules, "seconds": end_s - start_s, "read_s": read_s}
        counter.close()
except IpjEdgeError as error:
    said["error"] = str(error)
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


def ask(library: Path, state: Path, sleep_s: float = 0, **options: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", OPEN, json.dumps(options), str(sleep_s)],
        env=os.environ | environment(library, state),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_constant_power_gives_power_times_time_within_the_counter_s_updates(library: Path, tmp_path: Path):
    write_state(tmp_path / "state", [FakeGpu(uuid=A, name="NVIDIA L4", power_mw=50_000, since_s=time.monotonic())])
    said = ask(library, tmp_path / "state", sleep_s=1)
    assert said["kind"] == "NvmlCounter"
    # One update of 100 ms at both ends together: at most 5 J; and the library answers at some moment of a read.
    assert said["joules"][A] == pytest.approx(50 * said["seconds"], abs=5.01 + 50 * said["read_s"])
    assert said["joules"][A] > 0


def test_gpus_are_found_with_their_names_and_slices(library: Path, tmp_path: Path):
    fake = [FakeGpu(uuid=A, name="NVIDIA A100-SXM4-40GB", slices=("MIG-1", "MIG-2")), FakeGpu(uuid=B)]
    write_state(tmp_path / "state", fake)
    said = ask(library, tmp_path / "state", visible_devices="MIG-2")
    assert said["reason"] == f"energy counter of NVIDIA A100-SXM4-40GB ({A})"
    assert "25 % duty" in said["note"]
    assert "shared" in said["note"]


@pytest.mark.parametrize(("value", "uuids"), [(B, [B]), ("1,0", [B, A]), ("GPU-bbbb", [B])])
def test_visible_devices_are_mapped_by_uuid(library: Path, tmp_path: Path, value: str, uuids: list[str]):
    write_state(tmp_path / "state", [FakeGpu(uuid=A, name="NVIDIA L4"), FakeGpu(uuid=B, name="NVIDIA T400")])
    assert list(ask(library, tmp_path / "state", visible_devices=value)["joules"]) == uuids


def test_a_library_of_ten_functions_is_enough(tmp_path: Path):
    write_state(tmp_path / "state", [FakeGpu(uuid=A, energy_mj=7), FakeGpu(uuid=B, energy_mj=8)])
    said = ask(build(tmp_path / "bare", bare=True), tmp_path / "state")
    assert said["joules"] == {A: 0.0, B: 0.0}


@pytest.mark.parametrize(
    ("gpu", "init", "reason"),
    [
        (FakeGpu(uuid=A, energy_return=3, power_return=3), 0, "Not Supported"),
        (FakeGpu(uuid=A, energy_return=4), 0, "may not ask"),
        (FakeGpu(uuid=A), 9, "not loaded"),
        (FakeGpu(uuid=A), 18, "another version"),
    ],
)
def test_return_codes_of_the_library_become_reasons(
    library: Path, tmp_path: Path, gpu: FakeGpu, init: int, reason: str
):
    write_state(tmp_path / "state", [gpu], init_return=init)
    said = ask(library, tmp_path / "state")
    assert said["available"] is False
    assert reason in said["reason"]
    assert said["reason"] in said["error"]


def test_power_serves_where_the_library_has_no_counter(library: Path, tmp_path: Path):
    write_state(tmp_path / "state", [FakeGpu(uuid=A, name="Tesla P4", energy_return=3, power_mw=9, architecture=4)])
    said = ask(library, tmp_path / "state")
    assert said["kind"] == "NvmlSampler"
    assert "no energy counter" in said["note"]


def test_a_machine_without_the_driver_says_how_to_get_it(tmp_path: Path):
    try:
        import ctypes

        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        pass
    else:
        pytest.skip("this machine has an NVIDIA driver")
    said = ask(tmp_path, tmp_path / "state")
    assert said["available"] is False
    assert "libnvidia-ml.so.1 is not here" in said["reason"]
    assert "--gpus all" in said["fix"]
