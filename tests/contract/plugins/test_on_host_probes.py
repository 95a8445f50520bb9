"""What every on-host probe does where its sensor is missing: a reason, an error of ours, nothing left open."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ipj_edge.errors import MissingDependencyError, ProbeUnavailableError
from ipj_edge.plugins import load_probe
from ipj_edge.values import ProbeOptions

PROBES = ("hwmon", "nvml", "battery", "jetson", "rpi5", "ipmi")


@pytest.fixture
def nothing(tmp_path: Path) -> ProbeOptions:
    (tmp_path / "sys").mkdir()
    (tmp_path / "bin").mkdir()
    return ProbeOptions(sysfs_root=str(tmp_path / "sys"), search_path=str(tmp_path / "bin"), select="no such thing")


@pytest.mark.parametrize("name", PROBES)
def test_the_name_is_the_entry_point_s(name: str):
    assert load_probe(name).name == name


@pytest.mark.parametrize("name", PROBES)
def test_a_missing_sensor_is_a_reason(name: str, nothing: ProbeOptions):
    found = load_probe(name).availability(nothing)
    assert not found.available
    assert found.reason


@pytest.mark.parametrize("name", PROBES)
def test_opening_a_missing_sensor_gives_the_same_reason_as_an_error(name: str, nothing: ProbeOptions):
    probe, threads = load_probe(name), threading.active_count()
    with pytest.raises((ProbeUnavailableError, MissingDependencyError)) as caught:
        probe.open(nothing)
    assert caught.value.exit_code in (6, 8)
    assert "\n" not in str(caught.value)
    assert probe.availability(nothing).reason in str(caught.value)
    assert threading.active_count() == threads
