"""``ipj-edge measure`` with the on-host probes, in a process of its own: options, environment, reasons."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ipj_edge.testing.fake_nvml import FakeGpu, build, environment, has_compiler, write_state
from ipj_edge.testing.hwmon import FakeSysfs

MEASURE = "from ipj_edge.cli.figures.measure import command; command()"
A, B = "GPU-aaaa1111-0000", "GPU-bbbb2222-0000"
NOBODY = 65534


def measure(tmp_path: Path, *arguments: str, **variables: str) -> dict[str, Any]:
    document = tmp_path / "m.json"
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, "--json", str(document), *arguments],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(document.read_text())


def test_a_chip_below_another_root_gives_joules_watts_and_the_boundary(tmp_path: Path):
    sysfs = FakeSysfs(tmp_path / "host/sys")
    sysfs.hwmon("ina226", {"power1_input": 2_500_000})
    said = measure(tmp_path, "--sysfs-root", str(sysfs.root), "--probe", "hwmon", "--error", "20%", "--", "sleep", "1")
    assert said["watts"] == pytest.approx(2.5)
    assert said["joules"] == pytest.approx(2.5 * said["seconds"])
    assert (said["provenance"], said["boundary"]) == ("measured", "rails")


def test_several_chips_are_a_reason_that_lists_them_and_one_can_be_selected(tmp_path: Path):
    sysfs = FakeSysfs(tmp_path / "sys")
    sysfs.hwmon("ina226", {"power1_input": 1_000_000}, device="i2c-1/1-0040")
    sysfs.hwmon("ina226", {"power1_input": 2_000_000}, device="i2c-1/1-0041")
    arguments = ("--sysfs-root", str(sysfs.root), "--probe", "hwmon", "--error", "50%")
    said = measure(tmp_path, *arguments, "--", "true")
    assert said["joules"] is None
    assert "ina226@1-0041" in said["reason"]
    said = measure(tmp_path, *arguments, "--select", "ina226@1-0041", "--", "sleep", "1")
    assert said["watts"] == pytest.approx(2.0)


def test_a_window_too_short_for_the_sensor_is_refused_not_extrapolated(tmp_path: Path):
    sysfs = FakeSysfs(tmp_path / "sys")
    sysfs.hwmon("ina226", {"power1_input": 1_000_000, "update_interval": 1000})
    said = measure(tmp_path, "--sysfs-root", str(sysfs.root), "--probe", "hwmon", "--", "sleep", "0.2")
    assert said["joules"] is None
    assert "too short" in said["reason"]


@pytest.mark.skipif(not has_compiler(), reason="needs gcc")
def test_a_child_that_sees_one_gpu_is_charged_for_that_one(tmp_path: Path):
    pytest.importorskip("pynvml", reason="needs nvidia-ml-py")
    library, state, now_s = build(tmp_path / "lib"), tmp_path / "state", time.monotonic()
    gpus = [FakeGpu(uuid=A, power_mw=300_000, since_s=now_s), FakeGpu(uuid=B, power_mw=50_000, since_s=now_s)]
    write_state(state, gpus)
    variables = environment(library, state) | {"CUDA_VISIBLE_DEVICES": B}
    said = measure(tmp_path, "--probe", "nvml", "--error", "10%", "--", "sleep", "2.2", **variables)
    assert list(said["rails"]) == [B]
    assert said["boundary"] == "gpu"
    assert said["watts"] == pytest.approx(50, rel=0.05)


def test_ipmitool_is_found_on_the_search_path(tmp_path: Path):
    tool = tmp_path / "bin/ipmitool"
    tool.parent.mkdir()
    tool.write_text(
        "#!/bin/sh\necho 'Instantaneous power reading: 215 Watts'\necho 'Power reading state is: activated'\n"
    )
    tool.chmod(0o755)
    path = f"{tool.parent}:{os.environ['PATH']}"
    said = measure(tmp_path, "--probe", "ipmi", "--error", "90%", "--", "sleep", "3.4", PATH=path)
    assert said["watts"] == pytest.approx(215)
    assert said["boundary"] == "wall"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Give a folder that every user may enter, which tmp_path is not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_file_for_root_only_is_a_reason_with_its_remedy_never_zero(open_folder: Path):
    chip = FakeSysfs(open_folder / "sys").hwmon("amd_energy", {"energy1_input": 5})
    (chip / "energy1_input").chmod(0o400 if os.geteuid() == 0 else 0o000)
    code = (
        "import json, os, sys\n"
        "from ipj_edge import plugins\n"
        "from ipj_edge.values import ProbeOptions\n"
        "probe = plugins.load_probe('hwmon')\n"
        "if os.geteuid() == 0: os.seteuid(int(sys.argv[2]))\n"
        "found = probe.availability(ProbeOptions(sysfs_root=sys.argv[1]))\n"
        "print(json.dumps([found.available, found.reason, found.fix]))\n"
    )
    command = [sys.executable, "-c", code, str(open_folder / "sys"), str(NOBODY)]
    available, reason, fix = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)
    assert available is False
    assert "energy1_input is there but this user may not read it" in reason
    assert "chmod a+r" in fix
