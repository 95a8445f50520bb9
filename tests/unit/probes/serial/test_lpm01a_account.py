"""Counting LPM01A samples against their time stamps."""

from __future__ import annotations

import numpy as np
import pytest

from ipj_edge.errors import ProbeReadError
from ipj_edge_probes.serial.lpm01a.account import StampAccount
from ipj_edge_probes.serial.lpm01a.decode import MarkKind, StreamChunk, StreamMark


def chunk(*parts: int | str | float) -> StreamChunk:
    """Build a chunk: ints are samples, ``"1000"`` a stamp of that many ms, other strings kinds of marks."""
    values: list[float] = []
    marks: list[StreamMark] = []
    for part in parts:
        if isinstance(part, int):
            values += [float(part)] * part
        elif isinstance(part, float):
            values.append(part)
        elif part.isdigit():
            marks.append(StreamMark(kind=MarkKind.STAMP, position=len(values), stamp_ms=int(part), buffer_share=0.01))
        else:
            marks.append(StreamMark(kind=MarkKind[part], position=len(values), text=part))
    return StreamChunk(values=np.array(values), marks=tuple(marks))


def test_whole_blocks_lose_nothing() -> None:
    got = StampAccount(1000, hold=False).feed(chunk("0", 1000, "1000", 1000, "2000", 5))
    assert (len(got.values), got.lost) == (2005, 0)


def test_990_samples_for_a_second_are_ten_lost_ones_filled_in() -> None:
    got = StampAccount(1000, hold=False).feed(chunk("0", 1000, "1000", 990, "2000", 1000, "3000"))
    assert (len(got.values), got.lost) == (3000, 10)
    assert got.values[1990:2000].tolist() == [990.0] * 10


def test_a_torn_sample_is_filled_with_the_one_before_and_counted_once() -> None:
    got = StampAccount(1000, hold=False).feed(chunk("0", 500, np.nan, 499, "1000"))
    assert (len(got.values), got.lost) == (1000, 1)
    assert got.values[500] == 500.0


def test_a_missing_time_stamp_is_no_loss() -> None:
    got = StampAccount(1000, hold=False).feed(chunk("0", 2000, "2000"))
    assert (len(got.values), got.lost) == (2000, 0)


def test_samples_before_the_first_stamp_are_not_counted_against_it() -> None:
    assert StampAccount(1000, hold=False).feed(chunk(3, "7000", 1000, "8000")).lost == 0


def test_a_held_block_comes_out_with_its_stamp() -> None:
    account = StampAccount(10_000, hold=True)
    assert len(account.feed(chunk(9, "0", 700)).values) == 0
    assert account.held == 700
    assert len(account.feed(chunk(300, "100")).values) == 1000


def test_a_doubtful_block_is_lost_as_a_whole() -> None:
    got = StampAccount(10_000, hold=True).feed(chunk("0", 1000, "100", 600, "MISALIGNED", 399, "200", 1000, "300"))
    assert (len(got.values), got.lost) == (3000, 1000)


@pytest.mark.parametrize("clock", ["1330", "2000"])
def test_stamps_that_run_too_fast_over_whole_blocks_are_an_error(clock: str) -> None:
    with pytest.raises(ProbeReadError, match="time stamps advance by"):
        StampAccount(1000, hold=False).feed(chunk("0", 1000, clock))


def test_more_samples_than_the_time_allows_are_an_error() -> None:
    with pytest.raises(ProbeReadError, match="should by 1500 ms"):
        StampAccount(1000, hold=False).feed(chunk("0", 1500, "1000"))


def test_stamps_that_go_back_are_an_error() -> None:
    with pytest.raises(ProbeReadError, match="went back by 500 ms"):
        StampAccount(1000, hold=False).feed(chunk("1500", 1000, "1000"))


@pytest.mark.parametrize(("kind", "message"), [("FAILURE", "reports: FAILURE"), ("END", "ended the acquisition")])
def test_a_meter_that_fails_or_stops_is_an_error(kind: str, message: str) -> None:
    with pytest.raises(ProbeReadError, match=message):
        StampAccount(1000, hold=False).feed(chunk("0", 10, kind))


def test_a_full_buffer_is_an_error() -> None:
    full = StreamMark(kind=MarkKind.STAMP, position=0, stamp_ms=1000, buffer_share=1.0)
    with pytest.raises(ProbeReadError, match="full buffer"):
        StampAccount(1000, hold=False).feed(StreamChunk(values=np.empty(0), marks=(full,)))
