"""The sysfs probes against a real kernel: Debian's, under emulation, with its sbs-battery and ltc4151 drivers.

The script that boots it is named by IPJ_EDGE_KERNEL_LAB, or lies at shared/lab/kernel-lab beside a folder above
the repository. Its head says what it emulates: 11.8 V and -1.2 A of a battery, 24 V and 1 A of a supply.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
PACKAGES = ("qemu-system-x86_64", "busybox", "depmod", "cpio")
MEASURE = (sys.executable, "-c", "from ipj_edge.cli.figures.measure import command; command()")

pytestmark = [pytest.mark.slow, pytest.mark.hardware]


def find_script() -> Path | None:
    if "IPJ_EDGE_KERNEL_LAB" in os.environ:
        return Path(os.environ["IPJ_EDGE_KERNEL_LAB"])
    near = [folder / "shared/lab/kernel-lab" for folder in REPOSITORY.parents]
    return next((path for path in near if path.exists()), None)


@pytest.fixture(scope="module")
def script() -> Path:
    found = find_script()
    if found is None or not found.exists():
        pytest.skip("no kernel-lab script; name it with IPJ_EDGE_KERNEL_LAB")
    missing = [name for name in PACKAGES if shutil.which(name) is None]
    if missing:
        pytest.skip(f"kernel-lab needs {', '.join(missing)}; run it once by hand to install them")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    if not (cache / "kernel-lab/ready").exists():
        pytest.skip("kernel-lab has no kernel yet; run it once by hand to download one")
    return found


def measure(script: Path, probe: str, *settings: str, sleep_s: int = 8) -> dict[str, Any]:
    """Measure a sleeping command in the emulated machine; both output streams come back as one."""
    inner = [*MEASURE, "--probe", probe, "--json", "-", "--", "sleep", str(sleep_s)]
    done = subprocess.run(
        [str(script), *settings, "--", *inner],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{\n") :])
    return document


def test_the_supply_s_24_watts_are_measured_and_the_battery_s_mirror_is_not_added(script: Path):
    said = measure(script, "hwmon")
    assert said["watts"] == pytest.approx(24.0, rel=0.02)
    assert said["provenance"] == "measured"
    assert "ltc4151" in said["note"]
    # A second rail would be the mirror that the kernel makes of the battery.
    assert len(said["rails"]) == 1


def test_a_staircase_of_current_averages_to_48_watts_over_whole_periods(script: Path):
    # The steps last a little over a second each, so that a few periods are not quite whole.
    assert measure(script, "hwmon", "ramp=1", sleep_s=20)["watts"] == pytest.approx(48.0, rel=0.05)


def test_a_discharging_battery_gives_its_14_watts(script: Path):
    said = measure(script, "battery")
    assert said["watts"] == pytest.approx(14.16, rel=0.02)
    assert said["boundary"] == "battery"
    assert list(said["rails"]) == ["sbs-0-000b"]


def test_a_charging_battery_gives_a_reason_and_no_joules(script: Path):
    said = measure(script, "battery", "battery_ma=900")
    assert said["joules"] is None
    assert said["watts"] is None
    assert "Charging" in said["reason"]
    assert "unplug" in said["reason"]
