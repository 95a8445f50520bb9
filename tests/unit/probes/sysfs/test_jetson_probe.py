"""The jetson probe: a total and its parts by label, on the layouts of both JetPack generations."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipj_edge.errors import ProbeReadError, ProbeUnavailableError
from ipj_edge.plugins import load_probe
from ipj_edge.testing.hwmon import FakeSysfs
from ipj_edge.values import ProbeOptions
from ipj_edge_probes.sysfs.jetson import BoardReader, JetsonProbe

ORIN_NX = {"VDD_IN": (5000, 2000), "VDD_CPU_GPU_CV": (5000, 800), "VDD_SOC": (5000, 400)}
AGX_ORIN_40 = {"VDD_GPU_SOC": (20000, 100), "VDD_CPU_CV": (20000, 50), "VIN_SYS_5V0": (5000, 600)}
AGX_ORIN_41 = {"NC": (0, 0), "VDDQ_VDD2_1V8AO": (20000, 40)}
NANO = {"POM_5V_IN": (5000, 900), "POM_5V_GPU": (5000, 200), "POM_5V_CPU": (5000, 300)}


@pytest.fixture
def sysfs(tmp_path: Path) -> FakeSysfs:
    return FakeSysfs(tmp_path / "sys")


def options(sysfs: FakeSysfs, select: str | None = None) -> ProbeOptions:
    return ProbeOptions(sysfs_root=str(sysfs.root), select=select)


def total(sysfs: FakeSysfs, select: str | None = None) -> float:
    sampler = JetsonProbe().open(options(sysfs, select))
    power_w = BoardReader(JetsonProbe().board(options(sysfs, select)))()
    assert set(power_w) == {rail.name for rail in sampler.rails}
    return sum(power_w[rail.name] for rail in sampler.rails if rail.counted)


def refusal(sysfs: FakeSysfs, select: str | None = None) -> str:
    with pytest.raises(ProbeUnavailableError) as caught:
        JetsonProbe().open(options(sysfs, select))
    assert not JetsonProbe().availability(options(sysfs, select)).available
    return str(caught.value)


def test_parts_are_never_added_to_the_total(sysfs: FakeSysfs):
    sysfs.ina3221(ORIN_NX)
    assert total(sysfs) == pytest.approx(10.0)
    sampler = load_probe("jetson").open(options(sysfs))
    assert sampler.facts.boundary == "module"
    assert {rail.name: rail.counted for rail in sampler.rails} == {
        "VDD_IN": True,
        "VDD_CPU_GPU_CV": False,
        "VDD_SOC": False,
    }


def test_jetpack_4_gives_milliwatts_under_industrial_io(sysfs: FakeSysfs):
    sysfs.ina3221x(NANO)
    assert total(sysfs) == pytest.approx(4.5)


def test_agx_orin_is_a_sum_over_two_chips_and_called_uncertain(sysfs: FakeSysfs):
    sysfs.ina3221(AGX_ORIN_40, device="i2c-1/1-0040")
    sysfs.ina3221(AGX_ORIN_41, device="i2c-1/1-0041")
    assert total(sysfs) == pytest.approx(2.0 + 1.0 + 3.0 + 0.8)
    known = JetsonProbe().open(options(sysfs)).facts
    assert known.boundary == "module"
    assert "uncertain" in known.note


def test_agx_orin_without_its_second_chip_has_no_total(sysfs: FakeSysfs):
    sysfs.ina3221(AGX_ORIN_40)
    assert "VDDQ_VDD2_1V8AO of AGX Orin is missing" in refusal(sysfs)


def test_agx_xavier_is_a_sum_of_rails(sysfs: FakeSysfs):
    rails = {"GPU": (19000, 100), "CPU": (19000, 100), "SOC": (19000, 100)}
    others = {"CV": (19000, 0), "VDDRQ": (19000, 50), "SYS5V": (5000, 400)}
    sysfs.ina3221x(rails, device="i2c-1/1-0040")
    sysfs.ina3221x(others, device="i2c-1/1-0041")
    assert total(sysfs) == pytest.approx(3 * 1.9 + 0.95 + 2.0)
    assert "incomplete" in JetsonProbe().open(options(sysfs)).facts.note


def test_thor_reads_vin_of_its_ina238_in_microwatts(sysfs: FakeSysfs):
    files = {
        "in0_input": 3,
        "in1_label": "VIN",
        "in1_input": 20000,
        "curr1_input": 1500,
        "power1_input": 31_000_000,
    }
    sysfs.hwmon("ina238", files, device="i2c-2/2-0044")
    assert total(sysfs) == pytest.approx(31.0)


def test_labels_that_are_not_in_the_table_are_shown_and_not_counted(sysfs: FakeSysfs):
    sysfs.ina3221({"VDD_IN": (5000, 2000), "VDD_MYSTERY": (5000, 400)})
    assert total(sysfs) == pytest.approx(10.0)
    assert "not classified and not counted: VDD_MYSTERY" in JetsonProbe().open(options(sysfs)).facts.note


def test_unknown_labels_alone_are_listed_and_never_guessed(sysfs: FakeSysfs):
    sysfs.ina3221({"VDD_MYSTERY": (5000, 400), "vdd_in": (5000, 900)})
    message = refusal(sysfs)
    assert "'VDD_MYSTERY'" in message
    assert "'vdd_in'" in message
    assert "--select" in message


def test_one_rail_can_be_selected_and_is_no_longer_the_module(sysfs: FakeSysfs):
    sysfs.ina3221(ORIN_NX)
    assert total(sysfs, "VDD_SOC") == pytest.approx(2.0)
    assert JetsonProbe().open(options(sysfs, "VDD_SOC")).facts.boundary == "rails"
    assert "no rail 'VDD_X'" in refusal(sysfs, "VDD_X")


def test_channels_that_are_not_connected_and_sums_are_skipped(sysfs: FakeSysfs):
    sysfs.ina3221({"NC": (0, 0), "VDD_IN": (5000, 2000)})
    assert set(JetsonProbe().board(options(sysfs)).sensors) == {"VDD_IN"}


def test_one_chip_seen_by_two_paths_is_one_chip(sysfs: FakeSysfs):
    sysfs.ina3221(ORIN_NX)
    by_class, by_driver = sysfs.root / "class/hwmon/hwmon0", sysfs.root / "bus/i2c/drivers/ina3221/1-0040"
    assert by_class.resolve() == (by_driver / "hwmon/hwmon0").resolve()
    assert total(sysfs) == pytest.approx(10.0)
    (by_class).unlink()
    assert total(sysfs) == pytest.approx(10.0)


def test_two_rails_with_the_total_s_label_are_a_reason(sysfs: FakeSysfs):
    sysfs.ina3221({"VDD_IN": (5000, 2000)}, device="i2c-1/1-0040")
    sysfs.ina3221({"VDD_IN": (5000, 1000)}, device="i2c-1/1-0041")
    assert "two rails are labelled VDD_IN" in refusal(sysfs)


def test_a_rail_that_dies_ends_the_measurement(sysfs: FakeSysfs):
    chip = sysfs.ina3221(ORIN_NX)
    read = BoardReader(JetsonProbe().board(options(sysfs)))
    read()
    (chip / "curr1_input").unlink()
    with pytest.raises(ProbeReadError, match="gone"):
        read()


def test_another_machine_s_monitors_are_not_taken_for_a_jetson(sysfs: FakeSysfs):
    sysfs.hwmon("coretemp", {"temp1_input": 1})
    assert "no Jetson power monitor" in refusal(sysfs)


def test_the_driver_s_update_interval_is_used(sysfs: FakeSysfs):
    sysfs.ina3221(ORIN_NX, update_interval_ms=500)
    assert JetsonProbe().open(options(sysfs)).facts.update_interval_s == 0.5
