"""The battery probe: the status decides, never the sign; a charger or a missing figure is a reason."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ipj_edge.errors import ProbeReadError, ProbeUnavailableError
from ipj_edge.plugins import load_probe
from ipj_edge.protocols import PowerSampler
from ipj_edge.testing.hwmon import FakeSysfs
from ipj_edge.values import ProbeOptions
from ipj_edge_probes.sysfs.battery import BatteryProbe
from ipj_edge_probes.sysfs.read import read_text

DISCHARGING = {
    "type": "Battery",
    "status": "Discharging",
    "present": 1,
    "voltage_now": 11_800_000,
    "current_now": -1_200_000,
}


@pytest.fixture
def sysfs(tmp_path: Path) -> FakeSysfs:
    return FakeSysfs(tmp_path / "sys")


def options(sysfs: FakeSysfs, select: str | None = None) -> ProbeOptions:
    return ProbeOptions(sysfs_root=str(sysfs.root), select=select)


def power(sysfs: FakeSysfs, select: str | None = None) -> dict[str, float]:
    return BatteryProbe().reader(options(sysfs, select))()


def refusal(sysfs: FakeSysfs, select: str | None = None) -> str:
    with pytest.raises(ProbeUnavailableError) as caught:
        BatteryProbe().open(options(sysfs, select))
    assert not BatteryProbe().availability(options(sysfs, select)).available
    return str(caught.value)


def test_the_probe_is_registered_under_its_name(sysfs: FakeSysfs):
    sysfs.power_supply("BAT0", DISCHARGING)
    sampler = load_probe("battery").open(options(sysfs))
    assert isinstance(sampler, PowerSampler)
    assert sampler.facts.boundary == "battery"
    assert [rail.name for rail in sampler.rails] == ["BAT0"]


@pytest.mark.parametrize("current", [1_200_000, -1_200_000])
def test_voltage_times_current_whatever_its_sign(sysfs: FakeSysfs, current: int):
    sysfs.power_supply("BAT0", DISCHARGING | {"current_now": current})
    assert power(sysfs) == {"BAT0": pytest.approx(14.16)}


@pytest.mark.parametrize("reported", [4_721_000, -4_721_000])
def test_power_now_is_preferred_whatever_its_sign(sysfs: FakeSysfs, reported: int):
    sysfs.power_supply("BAT0", DISCHARGING | {"power_now": reported})
    assert power(sysfs) == {"BAT0": pytest.approx(4.721)}


def test_power_now_that_firmware_does_not_fill_falls_to_voltage_times_current(sysfs: FakeSysfs):
    sysfs.power_supply("BAT0", DISCHARGING | {"power_now": 0})

    def read(path: Path) -> str:
        if path.name == "power_now":
            raise OSError(errno.ENODEV, "injected")
        return read_text(path)

    assert BatteryProbe(read=read).reader(options(sysfs))() == {"BAT0": pytest.approx(14.16)}


@pytest.mark.parametrize("status", ["Charging", "Full", "Not charging", "Unknown"])
def test_only_a_discharging_battery_is_measured(sysfs: FakeSysfs, status: str):
    sysfs.power_supply("BAT0", DISCHARGING | {"status": status})
    message = refusal(sysfs)
    assert f"BAT0 is '{status}'" in message
    assert "unplug" in message


@pytest.mark.parametrize("charger", ["Mains", "USB", "Wireless"])
def test_a_connected_charger_is_a_reason_even_while_the_battery_discharges(sysfs: FakeSysfs, charger: str):
    sysfs.power_supply("BAT0", DISCHARGING)
    sysfs.power_supply("AC", {"type": charger, "online": 1})
    message = refusal(sysfs)
    assert "AC is online" in message
    assert "unplug" in message


def test_chargers_and_usb_ports_that_are_off_are_ignored(sysfs: FakeSysfs):
    sysfs.power_supply("AC", {"type": "Mains", "online": 0})
    port = {"type": "USB", "online": 0, "voltage_now": 5_000_000, "current_now": 3_000_000}
    sysfs.power_supply("ucsi-source-psy-USBC000:001", port)
    sysfs.power_supply("BAT0", DISCHARGING)
    assert set(power(sysfs)) == {"BAT0"}


def test_the_battery_of_a_mouse_is_not_this_machine_s(sysfs: FakeSysfs):
    sysfs.power_supply("hidpp_battery_0", DISCHARGING | {"scope": "Device"})
    assert "no battery of this machine" in refusal(sysfs)
    sysfs.power_supply("BAT0", DISCHARGING | {"scope": "System"})
    assert set(power(sysfs)) == {"BAT0"}


def test_a_bay_without_its_battery_is_no_battery(sysfs: FakeSysfs):
    sysfs.power_supply("BAT1", {"type": "Battery", "present": 0, "status": "Unknown"})
    assert "no battery" in refusal(sysfs)


def test_two_batteries_that_discharge_in_turn_are_one_supply(sysfs: FakeSysfs):
    resting = sysfs.power_supply("BAT0", DISCHARGING | {"status": "Not charging", "current_now": 0})
    sysfs.power_supply("BAT1", DISCHARGING)
    assert power(sysfs) == {"BAT0": 0.0, "BAT1": pytest.approx(14.16)}
    (resting / "current_now").write_text("500000\n")
    assert "BAT0 is 'Not charging' yet reads 5.9 W" in refusal(sysfs)


def test_one_of_two_batteries_can_be_selected(sysfs: FakeSysfs):
    sysfs.power_supply("BAT0", DISCHARGING | {"status": "Full"})
    sysfs.power_supply("BAT1", DISCHARGING)
    assert set(power(sysfs, "BAT1")) == {"BAT1"}
    assert "'BAT0', 'BAT1'" in refusal(sysfs, "BAT7")


def test_plugging_the_charger_in_ends_the_measurement_with_a_reason(sysfs: FakeSysfs):
    battery = sysfs.power_supply("BAT0", DISCHARGING)
    read = BatteryProbe().reader(options(sysfs))
    (battery / "status").write_text("Charging\n")
    with pytest.raises(ProbeReadError, match="BAT0 is 'Charging'"):
        read()


def test_no_figure_is_a_reason_not_zero(sysfs: FakeSysfs):
    battery = sysfs.power_supply("BAT0", DISCHARGING | {"current_now": 0})
    assert "no figure" in refusal(sysfs)
    (battery / "current_now").unlink()
    assert "neither power_now nor current_now" in refusal(sysfs)


def test_all_bits_set_is_no_power(sysfs: FakeSysfs):
    sysfs.power_supply("BAT0", DISCHARGING | {"power_now": 0xFFFF_FFFF_000})
    assert "which no battery gives" in refusal(sysfs)


def test_a_permission_error_is_reported_with_its_remedy(sysfs: FakeSysfs):
    sysfs.power_supply("BAT0", DISCHARGING)

    def read(path: Path) -> str:
        if path.name == "voltage_now":
            raise PermissionError(errno.EACCES, "injected")
        return read_text(path)

    with pytest.raises(ProbeUnavailableError, match=r"may not read.*chmod"):
        BatteryProbe(read=read).open(options(sysfs))


def test_an_update_interval_nobody_states_is_called_assumed(sysfs: FakeSysfs):
    sysfs.power_supply("BAT0", DISCHARGING)
    known = BatteryProbe().open(options(sysfs)).facts
    assert known.update_interval_s == 5.0
    assert "assumed" in known.note


def test_a_smart_battery_s_gauge_is_asked_at_each_poll(sysfs: FakeSysfs):
    battery = sysfs.power_supply("sbs-0-000b", DISCHARGING, device="i2c-0/0-000b")
    (sysfs.root / "bus/i2c/drivers/sbs-battery").mkdir(parents=True)
    (battery / "device").symlink_to(battery.parent.parent)
    (battery.parent.parent / "driver").symlink_to(sysfs.root / "bus/i2c/drivers/sbs-battery")
    known = BatteryProbe().open(options(sysfs)).facts
    assert known.update_interval_s == 0.1
    assert "assumed" not in known.note
