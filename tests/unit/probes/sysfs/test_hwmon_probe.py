"""The hwmon probe against trees with the kernel's layouts; one test for each trap of the ABI and known chips."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ipj_edge.errors import ProbeReadError, ProbeUnavailableError
from ipj_edge.plugins import load_probe
from ipj_edge.protocols import EnergyCounter, PowerSampler
from ipj_edge.testing.hwmon import FakeSysfs
from ipj_edge.values import ProbeOptions
from ipj_edge_probes.sysfs.hwmon import HwmonProbe, PowerReader, facts, poll_interval_s
from ipj_edge_probes.sysfs.read import read_text


@pytest.fixture
def sysfs(tmp_path: Path) -> FakeSysfs:
    return FakeSysfs(tmp_path / "sys")


def options(sysfs: FakeSysfs, select: str | None = None) -> ProbeOptions:
    return ProbeOptions(sysfs_root=str(sysfs.root), select=select)


def power(sysfs: FakeSysfs, select: str | None = None) -> dict[str, float]:
    return PowerReader(HwmonProbe().choose(options(sysfs, select)).channels)()


def counted(sysfs: FakeSysfs, select: str | None = None) -> list[str]:
    return [rail for rail, channel in HwmonProbe().choose(options(sysfs, select)).channels.items() if channel.counted]


def refusal(sysfs: FakeSysfs, select: str | None = None) -> str:
    with pytest.raises(ProbeUnavailableError) as caught:
        HwmonProbe().open(options(sysfs, select))
    found = HwmonProbe().availability(options(sysfs, select))
    assert not found.available
    assert found.reason in str(caught.value)
    assert found.fix in str(caught.value)
    return str(caught.value)


def failing(code: int, *names: str):
    def read(path: Path) -> str:
        if path.name in names:
            raise OSError(code, "injected")
        return read_text(path)

    return read


def test_the_probe_is_registered_under_its_name():
    assert load_probe("hwmon").name == "hwmon"


def test_a_power_file_is_microwatts(sysfs: FakeSysfs):
    sysfs.hwmon("ina226", {"in0_input": 3, "in1_input": 5000, "curr1_input": 9999, "power1_input": 2_500_000})
    assert power(sysfs) == {"power1": 2.5}


def test_voltage_times_current_serves_a_chip_without_power(sysfs: FakeSysfs):
    sysfs.hwmon("ltc4151", {"in1_input": 24000, "in2_input": 1234, "curr1_input": 1000}, device="i2c-0/0-006f")
    assert power(sysfs) == {"in1*curr1": pytest.approx(24.0)}


def test_a_sampler_is_opened_for_power_and_a_counter_for_energy(sysfs: FakeSysfs, tmp_path: Path):
    sysfs.hwmon("ina226", {"power1_input": 2_500_000})
    assert isinstance(HwmonProbe().open(options(sysfs)), PowerSampler)
    other = FakeSysfs(tmp_path / "other")
    other.hwmon("ina228", {"power1_input": 2_500_000, "energy1_input": 77})
    assert isinstance(HwmonProbe().open(options(other)), EnergyCounter)


def test_an_average_serves_where_there_is_no_instant_power_and_its_interval_counts(sysfs: FakeSysfs):
    sysfs.hwmon("power_meter", {"power1_average": 210_000_000, "power1_average_interval": 3000})
    choice = HwmonProbe().choose(options(sysfs))
    assert PowerReader(choice.channels)() == {"power1": 210.0}
    assert facts(choice).update_interval_s == 3.0
    assert facts(choice).boundary == "wall"


def test_the_mark_for_no_value_is_never_four_megawatts(sysfs: FakeSysfs):
    sysfs.hwmon("power_meter", {"power1_average": 4294967295000})
    assert "no value" in refusal(sysfs)


def test_the_mark_for_no_value_ends_a_running_measurement(sysfs: FakeSysfs):
    chip = sysfs.hwmon("power_meter", {"power1_average": 210_000_000})
    read = PowerReader(HwmonProbe().choose(options(sysfs)).channels)
    assert read() == {"power1": 210.0}
    (chip / "power1_average").write_text("4294967295000\n")
    with pytest.raises(ProbeReadError, match="no value"):
        read()


def test_shunt_voltages_and_sums_of_an_ina3221_are_no_rails(sysfs: FakeSysfs):
    sysfs.ina3221({"A": (5000, 400), "B": (3300, 1000), "C": (1800, 500)})
    assert power(sysfs) == pytest.approx({"A": 2.0, "B": 3.3, "C": 0.9})


def test_the_sum_of_several_rails_of_one_chip_is_called_a_sum(sysfs: FakeSysfs):
    sysfs.ina3221({"A": (5000, 400), "B": (3300, 1000)})
    assert "sum of A, B" in facts(HwmonProbe().choose(options(sysfs))).note


def test_parts_of_a_module_input_are_shown_and_not_counted(sysfs: FakeSysfs):
    sysfs.ina3221({"VDD_IN": (5000, 2000), "VDD_CPU_GPU_CV": (5000, 800), "VDD_SOC": (5000, 400)})
    assert set(power(sysfs)) == {"VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"}
    assert counted(sysfs) == ["VDD_IN"]


def test_a_selected_part_is_counted(sysfs: FakeSysfs):
    sysfs.ina3221({"VDD_IN": (5000, 2000), "VDD_SOC": (5000, 400)})
    assert power(sysfs, "VDD_SOC") == {"VDD_SOC": pytest.approx(2.0)}
    assert counted(sysfs, "ina3221/VDD_SOC") == ["VDD_SOC"]


def test_channels_that_are_not_connected_are_skipped(sysfs: FakeSysfs):
    sysfs.ina3221({"VDD_IN": (5000, 2000), "NC": (0, 0)})
    assert set(power(sysfs)) == {"VDD_IN"}


def test_pmbus_inputs_hold_their_outputs(sysfs: FakeSysfs):
    files = {
        "power1_label": "pin",
        "power1_input": 100_000_000,
        "power2_label": "pout1",
        "power2_input": 90_000_000,
    }
    sysfs.hwmon("tps53679", files)
    assert counted(sysfs) == ["pin"]


def test_pmbus_voltages_and_currents_are_paired_by_label_not_by_index(sysfs: FakeSysfs):
    voltages = {"in1_label": "vin", "in1_input": 12000, "in2_label": "vout1", "in2_input": 1000}
    currents = {"curr1_label": "iout1", "curr1_input": 20000}
    sysfs.hwmon("tps544", {**voltages, **currents})
    assert power(sysfs) == {"iout1": pytest.approx(20.0)}


@pytest.mark.parametrize("chip", ["ltc2947", "powerz"])
def test_chips_whose_bus_voltage_is_in0(sysfs: FakeSysfs, chip: str):
    files = {"in0_label": "VBUS", "in0_input": 5000, "in1_label": "CC1", "in1_input": 400, "curr1_input": 1200}
    sysfs.hwmon(chip, {**files, "curr1_label": "IBUS"})
    assert power(sysfs) == {"IBUS": pytest.approx(6.0)}


def test_a_voltage_without_its_current_is_no_rail(sysfs: FakeSysfs):
    sysfs.hwmon("nct6775", {"in0_input": 900, "in1_input": 1800})
    sysfs.hwmon("odd", {"in1_label": "shunt voltage", "in1_input": 2, "curr1_input": 3})
    assert "no chip" in refusal(sysfs)


def test_both_banks_of_an_ltc2947_count_the_same_energy(sysfs: FakeSysfs):
    chip = sysfs.hwmon("ltc2947", {"energy1_input": 1_000_000, "energy2_input": 1_000_000})
    counter = HwmonProbe().open(options(sysfs))
    (chip / "energy1_input").write_text("3500000\n")
    assert counter.read()[1] == {"energy1": 2.5}


def test_an_intel_card_holds_its_package(sysfs: FakeSysfs):
    files = {"energy1_label": "card", "energy1_input": 5, "energy2_label": "pkg", "energy2_input": 4}
    sysfs.hwmon("xe", files, device="pci/0000:03:00.0")
    assert counted(sysfs) == ["card"]
    assert facts(HwmonProbe().choose(options(sysfs))).boundary == "gpu"


def test_the_first_value_of_a_counter_is_its_baseline_only(sysfs: FakeSysfs):
    sysfs.hwmon("xe", {"energy1_input": 300_000_000_000})
    counter = HwmonProbe().open(options(sysfs))
    assert counter.read()[1] == {"energy1": 0.0}


def test_a_counter_that_goes_back_is_an_error_not_a_negative_or_a_wrap(sysfs: FakeSysfs):
    chip = sysfs.hwmon("xe", {"energy1_input": 5_000_000})
    counter = HwmonProbe().open(options(sysfs))
    (chip / "energy1_input").write_text("100\n")
    with pytest.raises(ProbeReadError, match=r"went back.*reset"):
        counter.read()
    # It counts on from there, so that later windows are good.
    (chip / "energy1_input").write_text("1000100\n")
    assert counter.read()[1] == {"energy1": pytest.approx(1.0)}


def test_power_that_flows_backwards_is_an_error_not_negative_energy(sysfs: FakeSysfs):
    sysfs.hwmon("ltc4151", {"in1_input": 24000, "curr1_input": -1000})
    assert "backwards" in refusal(sysfs)


def test_an_idle_rail_a_step_below_zero_is_zero(sysfs: FakeSysfs):
    sysfs.ina3221({"A": (5000, 400), "CAMERA": (5000, -8)})
    assert power(sysfs) == {"A": pytest.approx(2.0), "CAMERA": 0.0}


def test_several_chips_are_listed_and_never_added(sysfs: FakeSysfs):
    sysfs.hwmon("ina226", {"power1_input": 1_000_000}, device="i2c-1/1-0040")
    sysfs.hwmon("ina226", {"power1_input": 2_000_000}, device="i2c-1/1-0041")
    message = refusal(sysfs)
    assert "'ina226@1-0040'" in message
    assert "'ina226@1-0041'" in message
    assert "--select" in message


def test_a_chip_is_selected_by_name_and_device_never_by_its_hwmon_number(sysfs: FakeSysfs):
    sysfs.hwmon("ina226", {"power1_input": 1_000_000}, device="i2c-1/1-0040")
    sysfs.hwmon("ina226", {"power1_input": 2_000_000}, device="i2c-1/1-0041")
    assert power(sysfs, "ina226@1-0041") == {"power1": 2.0}
    assert "names several" in refusal(sysfs, "ina226")
    assert "names nothing" in refusal(sysfs, "hwmon1")


def test_chips_with_commas_between_are_added_as_the_user_asked(sysfs: FakeSysfs):
    sysfs.hwmon("ina226", {"power1_input": 1_000_000}, device="i2c-1/1-0040")
    sysfs.hwmon("ina226", {"power1_input": 2_000_000}, device="i2c-1/1-0041")
    both = power(sysfs, "ina226@1-0040, ina226@1-0041")
    assert both == {"ina226@1-0040/power1": 1.0, "ina226@1-0041/power1": 2.0}


def test_counters_and_power_are_not_mixed(sysfs: FakeSysfs):
    sysfs.hwmon("ina226", {"power1_input": 1_000_000}, device="i2c-1/1-0040")
    sysfs.hwmon("ina228", {"energy1_input": 2_000_000}, device="i2c-1/1-0041")
    assert "mixes" in refusal(sysfs, "ina226,ina228")


def test_chips_without_power_do_not_stand_in_the_way(sysfs: FakeSysfs):
    sysfs.hwmon("coretemp", {"temp1_input": 45000}, device="platform/coretemp.0")
    sysfs.hwmon("ina219", {"in0_input": 10, "in1_input": 5000, "curr1_input": 700}, device="i2c-1/1-0040")
    assert power(sysfs) == {"in1*curr1": pytest.approx(3.5)}


def test_the_mirror_of_a_battery_is_never_taken(sysfs: FakeSysfs):
    battery = {"type": "Battery", "status": "Discharging", "voltage_now": 11_800_000, "current_now": 1_200_000}
    sysfs.power_supply("sbs-0-000b", battery)
    assert "no chip" in refusal(sysfs)
    assert "names nothing" in refusal(sysfs, "sbs_0_000b")
    sysfs.hwmon("ltc4151", {"in1_input": 24000, "curr1_input": 1000}, device="i2c-0/0-006f")
    assert power(sysfs) == {"in1*curr1": pytest.approx(24.0)}


def test_the_mirror_of_a_battery_is_known_by_its_name_where_links_are_missing(tmp_path: Path):
    for folder, files in {
        "class/power_supply/BAT0": {"type": "Battery"},
        "class/hwmon/hwmon0": {"name": "BAT0", "in0_input": "11800", "in1_input": "11800", "curr1_input": "1200"},
    }.items():
        (tmp_path / folder).mkdir(parents=True)
        for name, text in files.items():
            (tmp_path / folder / name).write_text(text + "\n")
    assert "no chip" in refusal(FakeSysfs(tmp_path))


def test_a_channel_that_is_switched_off_is_left_out_and_named(sysfs: FakeSysfs):
    chip = sysfs.ina3221({"A": (5000, 400), "B": (3300, 1000)})
    (chip / "in2_enable").write_text("0\n")
    assert power(sysfs) == {"A": pytest.approx(2.0)}
    assert "B of ina3221@1-0040 switched off" in facts(HwmonProbe().choose(options(sysfs))).note


def test_a_chip_that_is_switched_off_says_so_with_the_remedy(sysfs: FakeSysfs):
    chip = sysfs.ina3221({"A": (5000, 400)})
    (chip / "in1_enable").write_text("0\n")
    message = refusal(sysfs)
    assert "switched off" in message
    assert "_enable" in message


def test_no_data_during_a_measurement_names_the_switch(sysfs: FakeSysfs):
    sysfs.hwmon("ina226", {"power1_input": 1_000_000})
    read = PowerReader(HwmonProbe().choose(options(sysfs)).channels, failing(errno.ENODATA, "power1_input"))
    with pytest.raises(ProbeReadError, match=r"switched off.*_enable"):
        read()


def test_a_permission_error_is_reported_with_its_remedy(sysfs: FakeSysfs):
    sysfs.hwmon("amd_energy", {"energy1_input": 1_000_000})
    probe = HwmonProbe(read=failing(errno.EACCES, "energy1_input"))
    with pytest.raises(ProbeUnavailableError, match=r"may not read.*chmod a\+r"):
        probe.open(options(sysfs))
    found = probe.availability(options(sysfs))
    assert not found.available
    assert "chmod" in found.fix


def test_a_sensor_that_does_not_answer_is_a_reason(sysfs: FakeSysfs):
    sysfs.hwmon("ina226", {"power1_input": 1_000_000})
    with pytest.raises(ProbeUnavailableError, match="did not answer"):
        HwmonProbe(read=failing(errno.EIO, "power1_input")).open(options(sysfs))


def test_text_where_a_number_belongs_is_a_reason(sysfs: FakeSysfs):
    sysfs.hwmon("ina226", {"power1_input": "oops"})
    assert "'oops'" in refusal(sysfs)


def test_chips_hidden_by_a_container_are_a_reason_with_the_remedy(sysfs: FakeSysfs):
    chip = sysfs.hwmon("ina226", {"power1_input": 1_000_000})
    sysfs.hide(chip)
    message = refusal(sysfs)
    assert "hidden" in message
    assert "--sysfs-root" in message


def test_a_machine_without_hwmon_is_a_reason(tmp_path: Path):
    assert "no chip" in refusal(FakeSysfs(tmp_path))


def test_the_driver_s_update_interval_is_used(sysfs: FakeSysfs):
    sysfs.hwmon("ina226", {"power1_input": 1, "update_interval": 500})
    assert facts(HwmonProbe().choose(options(sysfs))).update_interval_s == 0.5


def test_an_update_interval_nobody_states_is_called_assumed(sysfs: FakeSysfs):
    sysfs.hwmon("unheard_of", {"power1_input": 1})
    known = facts(HwmonProbe().choose(options(sysfs)))
    assert known.update_interval_s == 1.0
    assert "assumed" in known.note


@pytest.mark.parametrize(("period_s", "found_s", "word"), [(0.004, 0.1, "watched"), (0.2, 1.0, "assumed")])
def test_a_sensor_that_does_not_say_is_watched_for_a_second(
    sysfs: FakeSysfs, period_s: float, found_s: float, word: str
):
    sysfs.hwmon("unheard_of", {"power1_input": 1})
    now_s = [100.0]

    def read(path: Path) -> str:
        return str(1_000_000 + int(now_s[0] / period_s)) if path.name == "power1_input" else read_text(path)

    def sleep(seconds: float) -> None:
        now_s[0] += seconds

    known = HwmonProbe(read=read, clock=lambda: now_s[0], sleep=sleep).open(options(sysfs)).facts
    assert known.update_interval_s == pytest.approx(found_s)
    assert word in known.note


@pytest.mark.parametrize(("update_ms", "poll_s"), [(2, 0.04), (140, 0.07), (5000, 0.1)])
def test_polling_is_twice_as_fast_as_the_sensor_within_limits(sysfs: FakeSysfs, update_ms: int, poll_s: float):
    sysfs.hwmon("ina226", {"power1_input": 1, "update_interval": update_ms})
    assert poll_interval_s(HwmonProbe().choose(options(sysfs))) == pytest.approx(poll_s)


@pytest.mark.parametrize(
    ("stated", "error"), [("95.0%", 0.05), ("2", 0.02), ("0.0%", None), ("100.0%", None), ("", None)]
)
def test_the_accuracy_a_meter_states_becomes_its_error(sysfs: FakeSysfs, stated: str, error: float | None):
    sysfs.hwmon("power_meter", {"power1_average": 1, "power1_accuracy": stated})
    known = facts(HwmonProbe().choose(options(sysfs))).accuracy
    assert known == (None if error is None else pytest.approx(error))


def test_figures_that_amd_computes_are_called_vendor_modelled(sysfs: FakeSysfs):
    sysfs.hwmon(
        "amd_energy",
        {"energy1_label": "Esocket0", "energy1_input": 9, "energy2_label": "Ecore000", "energy2_input": 1},
    )
    choice = HwmonProbe().choose(options(sysfs))
    assert facts(choice).provenance == "vendor-modelled"
    assert [rail for rail, channel in choice.channels.items() if channel.counted] == ["Esocket0"]


def test_equal_labels_on_one_chip_stay_two_rails(sysfs: FakeSysfs):
    files = {"power1_label": "5V", "power1_input": 1_000_000, "power2_label": "5V", "power2_input": 2_000_000}
    sysfs.hwmon("twin", files)
    assert power(sysfs) == {"5V (power1)": 1.0, "5V (power2)": 2.0}
