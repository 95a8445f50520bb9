"""Finding and opening a serial port: every way it fails says what to do."""

from __future__ import annotations

import os
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest

from ipj_edge.errors import ProbeReadError, ProbeUnavailableError
from ipj_edge.values import ProbeOptions
from ipj_edge_probes.serial.emulation.dialogue import ScriptedPort
from ipj_edge_probes.serial.port import (
    PortListing,
    UsbId,
    candidates,
    discard_input,
    open_port,
    port_availability,
    port_remedy,
    read_until,
    split_port,
)

NORDIC = UsbId(vendor=0x1915, location_end="1")
PORTS = (
    PortListing(path="/dev/ttyS0"),
    PortListing(path="/dev/ttyACM0", description="PPK2", vendor=0x1915, product=0xC00A, location="1-2:1.3"),
    PortListing(path="/dev/ttyACM1", description="PPK2", vendor=0x1915, product=0xC00A, location="1-2:1.1"),
    PortListing(path="/dev/ttyACM2", description="STM32", vendor=0x0483, product=0x5740, location="1-3:1.0"),
)


@pytest.fixture
def pty() -> Iterator[tuple[int, str]]:
    master, slave = os.openpty()
    tty.setraw(slave)
    yield master, os.ttyname(slave)
    os.close(slave)


def test_of_a_meters_two_ports_the_measuring_one_is_proposed() -> None:
    assert [port.path for port in candidates(PORTS, NORDIC)] == ["/dev/ttyACM1"]
    assert port_remedy("ppk2", PORTS, NORDIC).startswith("--probe ppk2 --port /dev/ttyACM1 ")


def test_a_meter_is_found_by_vendor_and_product() -> None:
    assert [p.path for p in candidates(PORTS, UsbId(vendor=0x0483, product=0x5740))] == ["/dev/ttyACM2"]
    assert candidates(PORTS, UsbId(vendor=0x0483, product=0x1234)) == ()


def test_when_no_port_fits_the_usb_id_is_named() -> None:
    assert "no serial port with USB id 0483:5740" in port_remedy("lpm01a", (), UsbId(vendor=0x0483, product=0x5740))


def test_a_meter_without_a_usb_id_may_be_at_any_port() -> None:
    assert candidates(PORTS, None) == PORTS
    assert "no serial port was found" in port_remedy("um25c", (), None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/dev/ttyUSB0", ("/dev/ttyUSB0", 9600)),
        ("/dev/ttyUSB0@115200", ("/dev/ttyUSB0", 115200)),
        ("socket://10.0.0.2:5025", ("socket://10.0.0.2:5025", 9600)),
    ],
)
def test_a_port_may_name_its_baud_rate(text: str, expected: tuple[str, int]) -> None:
    assert split_port(text, 9600) == expected


def test_opening_without_a_port_says_which_option_gives_one() -> None:
    with pytest.raises(ProbeUnavailableError, match=r"'lpm01a' needs the serial port .*--probe lpm01a --port"):
        open_port("lpm01a", ProbeOptions(), baud=9600)


def test_availability_without_a_port_names_the_option() -> None:
    found = port_availability("ppk2", ProbeOptions(), NORDIC)
    assert not found.available
    assert "--probe ppk2 --port" in found.fix


def test_a_port_that_does_not_exist_is_said_to_be_missing(tmp_path: Path) -> None:
    options = ProbeOptions(port=str(tmp_path / "ttyNONE"))
    assert "does not exist" in port_availability("ppk2", options, NORDIC).reason
    with pytest.raises(ProbeUnavailableError, match="does not exist"):
        open_port("ppk2", options, baud=9600)


def test_a_file_that_is_no_serial_port_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ProbeUnavailableError, match="cannot open"):
        open_port("ppk2", ProbeOptions(port=str(tmp_path / "file")), baud=9600)


def test_a_port_in_use_is_said_to_be_in_use(pty: tuple[int, str]) -> None:
    master, path = pty
    options = ProbeOptions(port=path)
    first = open_port("ppk2", options, baud=9600)
    with pytest.raises(ProbeUnavailableError, match="in use by another program"):
        open_port("ppk2", options, baud=9600)
    first.close()
    os.close(master)


def test_bytes_arrive_both_ways_and_unplugging_is_an_error(pty: tuple[int, str]) -> None:
    master, path = pty
    port = open_port("ppk2", ProbeOptions(port=f"{path}@3686400"), baud=9600)
    assert port.read(0.0) == b""
    port.write(b"\x19")
    assert os.read(master, 10) == b"\x19"
    os.write(master, b"x" * 3000)
    assert len(port.read(1.0)) == 3000
    os.close(master)
    with pytest.raises(ProbeReadError, match="unplugged"):
        port.read(0.1)
    port.close()


def test_reading_until_a_mark_gives_up_with_what_came() -> None:
    with pytest.raises(ProbeReadError, match=r"no b'END' .* received b'hal'"):
        read_until(ScriptedPort([(None, b"hal")]), b"END", 0.05)


def test_a_meter_that_never_stops_sending_is_an_error() -> None:
    port = ScriptedPort([(None, b"x")] * 100_000)
    with pytest.raises(ProbeReadError, match="still sends"):
        discard_input(port, quiet_s=0.0, limit_s=0.0)
