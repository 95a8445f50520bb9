"""SCPI numbers, sentinels, and which instrument knows which words."""

from __future__ import annotations

import pytest

from ipj_edge.errors import ProbeReadError
from ipj_edge_probes.serial.scpi.line import parse_number, resolution
from ipj_edge_probes.serial.scpi.models import UNKNOWN, ScpiKind, find_model
from ipj_edge_probes.serial.scpi.wt310_emulator import scientific


@pytest.mark.parametrize(
    ("reply", "value"),
    [("120.14E+00", 120.14), ("1.7431E+00", 1.7431), ("2.5000", 2.5), ("2.500W", 2.5), ("-1e-3", -1e-3)],
)
def test_numbers_are_read_with_and_without_unit(reply: str, value: float) -> None:
    assert parse_number(reply) == value


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("9.91E+37", "no data"),
        ("9.9E+37", "over range"),
        ("-9.9E37", "over range"),
        ("INF", "over range"),
        ("NAN", "over range"),
        ("", "number was expected"),
        ("OVLD", "number was expected"),
    ],
)
def test_what_is_no_number_is_an_error(reply: str, reason: str) -> None:
    with pytest.raises(ProbeReadError, match=reason):
        parse_number(reply)


@pytest.mark.parametrize(
    ("reply", "step"), [("120.14E+00", 0.01), ("1.2345E-03", 1e-7), ("12", 1.0), ("0.00000E+00", 1e-5)]
)
def test_resolution_is_one_step_of_the_last_digit(reply: str, step: float) -> None:
    assert resolution(reply) == pytest.approx(step)


@pytest.mark.parametrize(
    ("identity", "kind", "power"),
    [
        ("YOKOGAWA,WT310,C3QB12345E,F1.03", ScpiKind.INTEGRATOR, ""),
        ("RIGOL TECHNOLOGIES,DP832,DP8C,00.01.16", ScpiKind.POWER, ":MEAS:POWE? {channel}"),
        ("RIGOL TECHNOLOGIES,DL3021,DL3A,00.01", ScpiKind.POWER, ":MEAS:POW?"),
        ("Siglent Technologies,SPD3303X,SPD3X,1.01", ScpiKind.POWER, "MEAS:POWE? {channel}"),
        ("Siglent Technologies,SDL1020X,SDL,1.1", ScpiKind.POWER, "MEAS:POW?"),
        ("Keysight Technologies,N6705C,MY5,E.02", ScpiKind.POWER, "MEAS:POW? (@{channel})"),
        ("Agilent Technologies,E3631A,0,2.1", ScpiKind.VOLTS_AND_AMPS, ""),
        ("ITECH Ltd., IT6322A, 800, 1.0", ScpiKind.POWER, "MEAS:POW?"),
    ],
)
def test_each_instrument_is_asked_in_its_own_words(identity: str, kind: ScpiKind, power: str) -> None:
    model = find_model(identity)
    assert (model.kind, model.power) == (kind, power)


def test_an_unknown_instrument_is_asked_for_volts_and_amperes() -> None:
    assert find_model("ACME,PSU1,0,0") is UNKNOWN


@pytest.mark.parametrize(("value", "text"), [(120.14, "120.14E+00"), (1.7431, "1.7431E+00"), (0.0, "0.0000E+00")])
def test_the_emulator_writes_numbers_as_the_manual_shows_them(value: float, text: str) -> None:
    assert scientific(value) == text
