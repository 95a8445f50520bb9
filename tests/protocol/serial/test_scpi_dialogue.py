"""The SCPI drivers against written dialogues, and against emulated instruments on a pty and a socket."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

import pytest

from ipj_edge.errors import ConfigError, ProbeReadError, ProbeUnavailableError
from ipj_edge.protocols import EnergyCounter, PowerSampler
from ipj_edge.values import ProbeOptions
from ipj_edge_probes.serial.emulation.dialogue import ScriptedPort
from ipj_edge_probes.serial.emulation.profile import constant
from ipj_edge_probes.serial.emulation.pty_host import PtyHost
from ipj_edge_probes.serial.scpi.probe import ScpiProbe, connect
from ipj_edge_probes.serial.scpi.rigol_emulator import RIGOL_DP832, RigolEmulator, RigolFaults
from ipj_edge_probes.serial.scpi.wt310_emulator import Wt310Emulator, Wt310Faults

Window = Callable[[PowerSampler, float], tuple[float, float]]
RIGOL_IDN = (b"*IDN?\n", RIGOL_DP832.encode() + b"\r\n")
WT_SETUP = (
    *(":COMMUNICATE:REMOTE ON", ":COMMUNICATE:HEADER OFF", ":RATE 100MS", ":NUMERIC:FORMAT ASCII"),
    *(":NUMERIC:NORMAL:ITEM1 WH,1", ":NUMERIC:NORMAL:ITEM2 TIME,1", ":NUMERIC:NORMAL:NUMBER 2"),
    *(
        ":INTEGRATE:STOP",
        ":INTEGRATE:MODE NORMAL",
        ":INTEGRATE:TIMER 0,0,0",
        ":INTEGRATE:RESET",
        ":INTEGRATE:START",
    ),
)


def open_counter(host: PtyHost) -> EnergyCounter:
    counter = ScpiProbe().open(ProbeOptions(port=host.port))
    assert isinstance(counter, EnergyCounter)
    return counter


def open_sampler(host: PtyHost, **options: object) -> PowerSampler:
    sampler = ScpiProbe().open(ProbeOptions(port=host.port, **options))
    assert isinstance(sampler, PowerSampler)
    return sampler


def test_the_wt300_is_told_to_integrate_and_asked_for_watt_hours() -> None:
    state = (b":INTEGRATE:STATE?\n", b"STAR\r\n")
    value = b":NUMERIC:NORMAL:VALUE?\n"
    port = ScriptedPort(
        [
            (b"*IDN?\n", b"YOKOGAWA,WT310,C3QB,F1.03\r\n"),
            *((f"{command}\n".encode(), None) for command in WT_SETUP),
            state,
            *(state, (value, b"0.0000E+00,0.0000E+00\r\n")),
            *(state, (value, b"1.2500E-03,0.1000E+00\r\n")),
            (b":INTEGRATE:STOP\n", None),
            (b":COMMUNICATE:REMOTE OFF\n", None),
        ]
    )
    counter = connect(port, None)
    assert isinstance(counter, EnergyCounter)
    _, joules = counter.read()
    assert joules == {"wall": pytest.approx(4.5)}
    assert counter.facts.quantum_j == pytest.approx(3.6e-4)
    assert (counter.facts.boundary, counter.facts.accuracy) == ("wall", 0.0015)
    counter.close()
    counter.close()
    port.finish()
    assert port.closed


def test_a_supply_is_asked_in_the_words_of_its_model() -> None:
    port = ScriptedPort([RIGOL_IDN, (b":MEAS:POWE? CH2\n", b"2.5000\n")])
    sampler = connect(port, "CH2")
    port.finish()
    assert sampler.rails[0].name == "CH2"


def test_a_supply_that_does_not_know_power_is_asked_for_volts_and_amperes() -> None:
    port = ScriptedPort(
        [
            RIGOL_IDN,
            (b":MEAS:POWE? CH1\n", None),
            (b"SYST:ERR?\n", b'-113,"Undefined header"\n'),
            (b"SYST:ERR?\n", b'0,"No error"\n'),
            (b"MEAS:VOLT? CH1\n", b"5.0000\n"),
            (b"MEAS:CURR? CH1\n", b"0.5000\n"),
        ]
    )
    sampler = connect(port, None)
    port.finish()
    assert "one after the other" in sampler.facts.note


def test_an_unknown_instrument_is_said_to_be_unknown() -> None:
    port = ScriptedPort([(b"*IDN?\n", b"ACME,PSU,1,1\n"), (b"MEAS:VOLT?\n", b"5\n"), (b"MEAS:CURR?\n", b"1\n")])
    assert "not in the table" in connect(port, None).facts.note


def test_a_silent_port_is_said_to_have_no_instrument() -> None:
    with pytest.raises(ProbeUnavailableError, match=r"no SCPI instrument answers .* check the baud rate"):
        connect(ScriptedPort([(b"*IDN?\n", None)]), None)


def test_a_channel_that_cannot_be_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="is no channel"):
        ScpiProbe().open(ProbeOptions(port="/dev/null", select="1;*RST"))


def test_the_wt300_counts_power_times_time() -> None:
    with PtyHost(Wt310Emulator(constant(0.5))) as host:
        counter = open_counter(host)
        asked_s = time.monotonic()
        begin_s, begin = counter.read()
        reading_s = time.monotonic() - asked_s
        time.sleep(1.5)
        asked_s = time.monotonic()
        end_s, end = counter.read()
        reading_s += time.monotonic() - asked_s
        counter.close()
    # A counter is wrong by one update at the ends together, and it answers at some moment of its reads.
    assert end["wall"] - begin["wall"] == pytest.approx(115 * (end_s - begin_s), abs=115 * (0.1 + reading_s))


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        (Wt310Faults(over_range_at_s=1.5), "over range"),
        (Wt310Faults(time_up_at_s=1.5), "does not run any more"),
        (Wt310Faults(unplug_at_s=1.5), "unplugged"),
    ],
)
def test_a_fault_of_the_wt300_in_the_window_is_an_error(
    faults: Wt310Faults, message: str, until_it_fails: Callable[[Callable[[], object]], None]
) -> None:
    with PtyHost(Wt310Emulator(constant(0.5), faults)) as host:
        counter = open_counter(host)
        with pytest.raises(ProbeReadError, match=message):
            until_it_fails(counter.read)
        counter.close()


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        (Wt310Faults(no_data=True), "no data"),
        (Wt310Faults(reversed_current=True), "turn the current terminals around"),
    ],
)
def test_a_wt300_that_gives_no_energy_cannot_be_opened(faults: Wt310Faults, message: str) -> None:
    with (
        PtyHost(Wt310Emulator(constant(0.5), faults)) as host,
        pytest.raises(ProbeUnavailableError, match=message),
    ):
        open_counter(host)


def test_an_integration_started_anew_at_the_front_panel_is_an_error() -> None:
    emulator = Wt310Emulator(constant(0.5))
    with PtyHost(emulator) as host:
        counter = open_counter(host)
        time.sleep(1.5)  # longer than what comes after it, on a busy machine too
        counter.read()
        emulator.obey(":INTEGRATE:RESET", time.monotonic())
        emulator.obey(":INTEGRATE:START", time.monotonic())
        time.sleep(0.15)
        with pytest.raises(ProbeReadError, match="started anew"):
            counter.read()
        counter.close()


@pytest.mark.parametrize("faults", [RigolFaults(), RigolFaults(no_power_question=True)])
def test_a_supply_gives_power_times_time(energy_of_window: Window, faults: RigolFaults) -> None:
    with PtyHost(RigolEmulator(constant(0.5), faults)) as host:
        joules, seconds = energy_of_window(open_sampler(host), 0.6)
    assert joules == pytest.approx(2.5 * seconds, rel=1e-3)


@pytest.mark.parametrize(
    ("faults", "message"),
    [(RigolFaults(over_range_at_s=1.5), "over range"), (RigolFaults(unplug_at_s=1.5), "unplugged")],
)
def test_a_fault_of_a_supply_in_the_window_is_an_error(
    faults: RigolFaults, message: str, until_it_fails: Callable[[Callable[[], object]], None]
) -> None:
    with PtyHost(RigolEmulator(constant(0.5), faults)) as host:
        sampler = open_sampler(host)
        sampler.start()
        with pytest.raises(ProbeReadError, match=message):
            until_it_fails(sampler.drain)
        sampler.stop()


def test_a_supply_whose_output_is_off_cannot_be_opened() -> None:
    with (
        PtyHost(RigolEmulator(constant(0.5), RigolFaults(output_off=True))) as host,
        pytest.raises(ProbeUnavailableError, match="is the channel on"),
    ):
        open_sampler(host)


def test_an_instrument_on_the_network_is_reached_by_a_socket(energy_of_window: Window) -> None:
    emulator = RigolEmulator(constant(0.5))
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                while data := connection.recv(4096):
                    connection.sendall(emulator.receive(data, time.monotonic()))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        address = f"socket://127.0.0.1:{server.getsockname()[1]}"
        sampler = ScpiProbe().open(ProbeOptions(port=address))
        assert isinstance(sampler, PowerSampler)
        joules, seconds = energy_of_window(sampler, 0.4)
        thread.join(2)
    assert joules == pytest.approx(2.5 * seconds, rel=1e-3)
