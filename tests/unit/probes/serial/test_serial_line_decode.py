"""Lines of values from home-made meters."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipj_edge.errors import ConfigError, ProbeReadError
from ipj_edge_probes.serial.line.decode import is_header, parse_header, parse_rows, split_lines, unwrap, watts_of


def watts(header: str, *lines: str, voltage_v: float | None = None) -> list[float]:
    columns = parse_header(header)
    rows, _ = parse_rows(list(lines), columns)
    return watts_of(rows, columns, voltage_v).tolist()


@pytest.mark.parametrize(
    ("header", "line", "expected"),
    [
        ("t_ms,bus_mV,current_mA", "5,5000,100.0", 0.5),
        ("t_us;load_V;I_A", "5;12;0.25", 3.0),
        ("shunt_mV,bus_V,current_mA", "10,5,100", 0.5),
        ("bus_V,load_V,current_mA", "5,4,100", 0.4),
        ("t_ms,power_mW", "5,250", 0.25),
        ("bus_V,current_mA,power_mW", "5,100,480", 0.5),
    ],
)
def test_power_is_worked_out_from_the_columns_that_are_there(header: str, line: str, expected: float) -> None:
    assert watts(header, line) == pytest.approx([expected])


def test_current_alone_takes_the_voltage_that_was_given() -> None:
    assert watts("current_mA", "100", voltage_v=3.3) == pytest.approx([0.33])


def test_current_alone_without_a_voltage_is_an_error() -> None:
    with pytest.raises(ConfigError, match="--voltage"):
        watts("t_ms,current_mA", "1,100")


def test_a_header_without_current_and_power_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no column of current or power"):
        parse_header("t_ms,bus_V")


@pytest.mark.parametrize(
    ("line", "header"), [("t_ms,bus_mV,current_mA", True), ("1,2,3", False), ("INA219 ready", False)]
)
def test_headers_are_told_from_other_lines(line: str, header: bool) -> None:
    assert is_header(line) is header


def test_lines_that_are_no_rows_are_counted_and_comments_are_not() -> None:
    rows, bad = parse_rows(["1,2,3", "", "# hello", "1,2", "1,2,x", "nan,1,2"], parse_header("t_ms,bus_mV,current_mA"))
    assert (rows.tolist(), bad) == ([[1.0, 2.0, 3.0]], 3)


def test_a_second_header_means_a_reset() -> None:
    with pytest.raises(ProbeReadError, match="reset"):
        parse_rows(["1,2,3", "t_ms,bus_mV,current_mA"], parse_header("t_ms,bus_mV,current_mA"))


@given(
    text=st.lists(st.sampled_from(["1,2,3\r\n", "x\n", "\n", "7,8,9\n"]), max_size=20),
    cuts=st.lists(st.integers(0, 99)),
)
def test_any_chunking_gives_the_same_lines(text: list[str], cuts: list[int]) -> None:
    data = "".join(text).encode()
    whole, _ = split_lines(b"", data)
    rest, lines = b"", []
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, stop in itertools.pairwise(edges):
        more, rest = split_lines(rest, data[start:stop])
        lines += more
    assert lines == whole


@given(
    start=st.integers(0, 2**32 - 1),
    steps=st.lists(st.integers(0, 10_000), min_size=1, max_size=50),
    cut=st.integers(0, 50),
)
def test_a_counter_that_wraps_anywhere_advances_by_the_same_steps(start: int, steps: list[int], cut: int) -> None:
    true = start + np.cumsum(np.array(steps, np.float64))
    shown = true % 2.0**32
    first = unwrap(shown[:cut], None)
    second = unwrap(shown[cut:], float(first[-1]) if len(first) else None)
    assert np.diff(np.concatenate((first, second))) == pytest.approx(np.diff(true))


def test_a_counter_that_goes_back_is_an_error() -> None:
    with pytest.raises(ProbeReadError, match="went back"):
        unwrap(np.array([5000.0, 5005.0, 12.0]), None)
