"""UM24C/25C/34C records."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipj_edge_probes.serial.um25c.decode import UmRecord, find_record, parse_record
from ipj_edge_probes.serial.um25c.emulator import record


def find_all(data: bytes, cuts: list[int] | None = None) -> list[UmRecord]:
    rest, found = b"", []
    edges = [0, *sorted(cuts or []), len(data)]
    for start, stop in itertools.pairwise(edges):
        rest += data[start:stop]
        while True:
            one, rest = find_record(rest)
            if one is None:
                break
            found.append(one)
    return found


def test_reference_bytes_decode() -> None:
    got = parse_record(bytes.fromhex("09c9 1403 3039 0000 18b4".replace(" ", "")) + bytes(120))
    assert (got.model, got.voltage_v, got.current_a, got.power_w) == (
        "UM25C",
        5.123,
        pytest.approx(1.2345),
        6.324,
    )


@pytest.mark.parametrize("model", ["UM24C", "UM25C", "UM34C"])
def test_each_model_is_read_in_its_own_units(model: str) -> None:
    (got,) = find_all(record(model, 5.12, 1.234, 7200.0))
    assert got == UmRecord(model=model, voltage_v=5.12, current_a=pytest.approx(1.234), power_w=6.318)


def test_a_wrong_closing_byte_is_no_record() -> None:
    frame = record("UM34C", 5.0, 1.0, 0.0)
    assert find_all(frame[:-1] + bytes((frame[-1] ^ 1,))) == []


def test_a_record_whose_power_is_not_volts_times_amperes_is_dropped() -> None:
    frame = bytearray(record("UM25C", 5.0, 1.0, 0.0))
    frame[7] ^= 0x40
    assert find_all(bytes(frame)) == []


def test_a_record_is_found_behind_a_model_id_that_opens_none() -> None:
    assert len(find_all(b"\x09\xc9\x00\x09" + record("UM25C", 5.0, 1.0, 0.0))) == 1


@given(
    garbage=st.binary(max_size=40),
    cuts=st.lists(st.integers(0, 300), max_size=8),
    amps=st.floats(0, 4),
)
def test_any_chunking_finds_the_same_records(garbage: bytes, cuts: list[int], amps: float) -> None:
    data = garbage + record("UM25C", 5.0, amps, 0.0) + record("UM25C", 9.0, amps, 3.6)
    whole = find_all(data)
    assert find_all(data, [min(cut, len(data)) for cut in cuts]) == whole
    assert [got.voltage_v for got in whole][-1] == 9.0
