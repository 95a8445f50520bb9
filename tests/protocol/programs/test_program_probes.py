"""The probes that ask a program (ipmi, rpi5), against fake programs that print the real formats."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ipj_edge.errors import ProbeReadError, ProbeUnavailableError
from ipj_edge.plugins import load_probe
from ipj_edge.values import ProbeOptions
from ipj_edge_probes.programs.ipmi import IpmiProbe, IpmiReader, parse_dcmi
from ipj_edge_probes.programs.rpi5 import Rpi5Probe, Rpi5Reader, board_fit, parse_pmic

DCMI = """
    Instantaneous power reading:                   215 Watts
    Minimum during sampling period:                 18 Watts
    Maximum during sampling period:                468 Watts
    Average power reading over sample period:      215 Watts
    IPMI timestamp:                           Thu Jan  1 00:00:00 1970
    Sampling period:                          01131466 Seconds.
    Power reading state is:                   activated

"""

PMIC = """   3V7_WL_SW_A current(0)=0.10000000A
     VDD_CORE_A current(7)=1.54489000A
   3V7_WL_SW_V volt(8)=3.70000000V
     VDD_CORE_V volt(15)=0.88725180V
        EXT5V_V volt(24)=5.13720000V
         BATT_V volt(25)=0.00000000V
"""


def program(folder: Path, name: str, output: str, *, code: int = 0, errors: str = "", sleep_s: float = 0) -> None:
    """Put a program on the search path that checks its arguments and prints what the real one prints."""
    expected = {"ipmitool": ["dcmi", "power", "reading"], "vcgencmd": ["pmic_read_adc"]}[name]
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(
        f"#!{sys.executable} -S\n"
        "import sys, time\n"
        f"assert sys.argv[1:] == {expected!r}, sys.argv\n"
        f"time.sleep({sleep_s})\n"
        f"sys.stdout.write({output!r})\nsys.stderr.write({errors!r})\nsys.exit({code})\n"
    )
    (folder / name).chmod(0o755)


def options(folder: Path, select: str | None = None) -> ProbeOptions:
    return ProbeOptions(search_path=str(folder), select=select)


def refusal(probe: IpmiProbe | Rpi5Probe, given: ProbeOptions) -> str:
    with pytest.raises(ProbeUnavailableError) as caught:
        probe.open(given)
    found = probe.availability(given)
    assert not found.available
    assert found.reason in str(caught.value)
    return str(caught.value)


def test_dcmi_gives_whole_watts_at_the_wall(tmp_path: Path):
    program(tmp_path, "ipmitool", DCMI)
    sampler = load_probe("ipmi").open(options(tmp_path))
    assert sampler.facts.boundary == "wall"
    assert "several nodes" in sampler.facts.note
    assert IpmiReader(str(tmp_path / "ipmitool"), 10.0)() == {"node": 215.0}
    assert IpmiProbe().availability(options(tmp_path)).reason == "the controller reads 215 W"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (DCMI.replace("activated", "deactivated"), "is deactivated"),
        (DCMI.replace("215", "  0"), "reads 0 W"),
        ("\n", "no instantaneous power"),
        (DCMI.replace("Watts", "Volts"), "no instantaneous power"),
    ],
)
def test_dcmi_without_a_figure_is_a_reason_not_zero(tmp_path: Path, text: str, reason: str):
    program(tmp_path, "ipmitool", text)
    assert reason in refusal(IpmiProbe(), options(tmp_path))
    with pytest.raises(ProbeReadError, match=reason):
        parse_dcmi(text)


def test_ipmitool_that_fails_says_its_last_words_and_the_remedy(tmp_path: Path):
    words = "Could not open device at /dev/ipmi0 or /dev/ipmi/0 or /dev/ipmidev/0: No such file or directory\n"
    program(tmp_path, "ipmitool", "", code=1, errors=words)
    message = refusal(IpmiProbe(), options(tmp_path))
    assert "Could not open device at /dev/ipmi0" in message
    assert "run as root" in message


def test_a_program_that_hangs_is_a_reason(tmp_path: Path):
    program(tmp_path, "ipmitool", DCMI, sleep_s=5)
    assert "no answer within 0.3 s" in refusal(IpmiProbe(timeout_s=0.3), options(tmp_path))


@pytest.mark.parametrize(("probe", "name"), [(IpmiProbe(), "ipmitool"), (Rpi5Probe(), "vcgencmd")])
def test_a_program_that_is_missing_is_a_reason(tmp_path: Path, probe: IpmiProbe | Rpi5Probe, name: str):
    assert f"'{name}' is not on the search path" in refusal(probe, options(tmp_path))


def test_a_controller_that_stops_answering_ends_the_measurement(tmp_path: Path):
    program(tmp_path, "ipmitool", DCMI)
    read = IpmiReader(str(tmp_path / "ipmitool"), 10.0)
    assert read() == {"node": 215.0}
    program(tmp_path, "ipmitool", DCMI.replace("activated", "deactivated"))
    with pytest.raises(ProbeReadError, match="deactivated"):
        read()


def test_the_power_chip_s_rails_are_pairs_of_volts_and_amperes(tmp_path: Path):
    program(tmp_path, "vcgencmd", PMIC)
    sampler = load_probe("rpi5").open(options(tmp_path))
    assert sampler.facts.boundary == "rails"
    assert sampler.facts.provenance == "measured"
    assert "USB" in sampler.facts.note
    assert [rail.name for rail in sampler.rails] == ["3V7_WL_SW", "VDD_CORE"]
    read = Rpi5Reader(str(tmp_path / "vcgencmd"), 5.0)
    assert read() == {"3V7_WL_SW": pytest.approx(0.37), "VDD_CORE": pytest.approx(1.54489 * 0.8872518)}


def test_the_fit_of_the_board_is_off_by_default_and_called_modelled(tmp_path: Path):
    program(tmp_path, "vcgencmd", PMIC)
    sampler = Rpi5Probe().open(options(tmp_path, "board-fit"))
    assert sampler.facts.provenance == "modelled"
    assert sampler.facts.boundary == "board"
    # 1.1451 P + 0.5879 W at P = 2 W
    assert board_fit({"a": 1.5, "b": 0.5}) == {"board": pytest.approx(2.8781)}
    assert "board-fit" in refusal(Rpi5Probe(), options(tmp_path, "VDD_CORE"))


def test_an_older_model_is_a_reason(tmp_path: Path):
    program(tmp_path, "vcgencmd", 'error=1 error_msg="Command not registered"\n')
    message = refusal(Rpi5Probe(), options(tmp_path))
    assert "Command not registered" in message
    assert "Raspberry Pi 5" in message


def test_a_user_outside_the_group_gets_the_remedy(tmp_path: Path):
    program(tmp_path, "vcgencmd", "", code=255, errors="Can't open device file: /dev/vcio\n")
    assert "group 'video'" in refusal(Rpi5Probe(), options(tmp_path))


def test_a_rail_with_negative_power_is_a_reason():
    with pytest.raises(ProbeReadError, match="VDD_CORE reads negative"):
        parse_pmic(PMIC.replace("=1.54489000A", "=-1.54489000A"))
