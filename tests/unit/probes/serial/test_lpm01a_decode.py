"""LPM01A streams: the reference's bytes, marks, lost bytes, and independence of how the stream is cut."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipj_edge_probes.serial.lpm01a.decode import Lpm01aStream, MarkKind, StreamChunk, decode_ascii, decode_binary
from ipj_edge_probes.serial.lpm01a.emulator import encode_ascii, encode_binary, number

Decoder = Callable[[Lpm01aStream, bytes], tuple[StreamChunk, Lpm01aStream]]
STAMP = bytes.fromhex("f0f300000bb801ffff")


def decode(decoder: Decoder, data: bytes, cuts: list[int] | None = None) -> tuple[list[float], list[tuple[str, int]]]:
    """Return (values, (mark, samples before it in the stream)) of a stream cut into chunks."""
    state = Lpm01aStream()
    values: list[float] = []
    marks: list[tuple[str, int]] = []
    edges = [0, *sorted(cuts or []), len(data)]
    for start, stop in itertools.pairwise(edges):
        chunk, state = decoder(state, data[start:stop])
        marks += [(f"{mark.kind.name} {mark.stamp_ms}", mark.position + len(values)) for mark in chunk.marks]
        values += chunk.values.tolist()
    return values, marks


def test_an_ascii_sample_is_mantissa_times_power_of_ten() -> None:
    assert decode(decode_ascii, b"6409-07\r\n0012+01\r\n")[0] == [6409e-7, 120.0]


def test_the_binary_sample_of_the_manual_is_641_microamperes() -> None:
    values, _ = decode(decode_binary, bytes.fromhex("52a0"))
    assert values[0] * 1e6 == pytest.approx(640.869, abs=5e-4)


def test_the_binary_time_stamp_of_the_manual_is_3000_ms_at_1_percent() -> None:
    chunk, state = decode_binary(Lpm01aStream(), bytes.fromhex("52a0") + STAMP + bytes.fromhex("52a0"))
    (mark,) = chunk.marks
    assert (mark.kind, mark.position, mark.stamp_ms, mark.buffer_share) == (MarkKind.STAMP, 1, 3000, 0.01)
    assert len(chunk.values) == 2
    assert (state.remainder, state.aligned) == (b"", True)


def test_an_ascii_time_stamp_is_a_mark_and_the_nul_after_it_is_dropped() -> None:
    chunk, _ = decode_ascii(Lpm01aStream(), b"6409-07\r\nTimeStamp: 003s 250ms, buff 01%\r\n\x006410-07\r\n")
    (mark,) = chunk.marks
    assert (mark.kind, mark.position, mark.stamp_ms, mark.buffer_share) == (MarkKind.STAMP, 1, 3250, 0.01)
    assert chunk.values.tolist() == [6409e-7, 6410e-7]


@pytest.mark.parametrize(
    ("line", "values"),
    [
        (b"409-07", [np.nan]),
        (b"6409-0764", [6409e-7, np.nan]),
        (b"6409-076410-07", [6409e-7, 6410e-7]),
        (b"09-076410-07", [np.nan, 6410e-7]),
        (b"6409-07641007", [6409e-7, np.nan]),
    ],
)
def test_a_torn_line_gives_nan_for_each_torn_part(line: bytes, values: list[float]) -> None:
    assert decode(decode_ascii, line + b"\r\n")[0] == pytest.approx(values, nan_ok=True)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b"event 1 ris", MarkKind.TEXT),
        (b"PowerShield > ack start", MarkKind.TEXT),
        (b"end", MarkKind.END),
        (b"Acquisition completed", MarkKind.END),
        (b"error: overcurrent", MarkKind.FAILURE),
    ],
)
def test_text_lines_are_marks(line: bytes, kind: MarkKind) -> None:
    chunk, _ = decode_ascii(Lpm01aStream(), line + b"\r\n")
    assert [mark.kind for mark in chunk.marks] == [kind]
    assert len(chunk.values) == 0


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        ("f0f1" + b"too hot".hex() + "ffff", MarkKind.FAILURE),
        ("f0f2" + b"hello".hex() + "ffff", MarkKind.TEXT),
        ("f0f38000000001ffff", MarkKind.FAILURE),
        ("f0f4ffff", MarkKind.END),
        ("f0f5ffff", MarkKind.END),
        ("f0f601ffff", MarkKind.TEXT),
        ("f0f70ce4ffff", MarkKind.TEXT),
        ("f0f8ffffffff", MarkKind.TEXT),
        ("f0f901ffff", MarkKind.TEXT),
    ],
)
def test_binary_marks_are_told_apart_and_skipped(raw: str, kind: MarkKind) -> None:
    values, marks = decode(decode_binary, bytes.fromhex("52a0" + raw + "52a0"))
    assert [mark.split()[0] for mark, _ in marks] == [kind.name]
    assert values == pytest.approx([0x2A0 * 16.0**-5] * 2)


def test_a_lost_byte_in_a_binary_stream_is_noticed_at_the_next_time_stamp() -> None:
    block = encode_binary(np.full(50, 6.4e-4))
    values, marks = decode(decode_binary, STAMP + block[:20] + block[21:] + STAMP + block)
    assert [mark for mark, _ in marks] == ["STAMP 3000", "MISALIGNED 0", "STAMP 3000"]
    assert values[-50:] == pytest.approx([6.4e-4] * 50, rel=1e-3)


@given(amps=st.floats(1e-8, 0.2))
def test_both_encodings_come_back_within_their_resolution(amps: float) -> None:
    assert decode(decode_ascii, encode_ascii(amps))[0][0] == pytest.approx(amps, rel=5.1e-4)
    assert decode(decode_binary, encode_binary(np.array([amps])))[0][0] == pytest.approx(amps, rel=2e-3)


@given(damage=st.lists(st.integers(0, 500), max_size=5), cuts=st.lists(st.integers(0, 500), max_size=10))
def test_any_chunking_of_an_ascii_stream_gives_the_same_samples(damage: list[int], cuts: list[int]) -> None:
    data = bytearray(b"".join(encode_ascii(n * 1e-6) for n in range(1, 41)))
    data[180:180] = b"TimeStamp: 001s 000ms, buff 01%\r\n\x00"
    data += b"event 3 ris\r\nTimeStamp: 002s 000ms, buff 01%\r\n6409-07\r\n"
    for position in damage:
        del data[min(position, len(data) - 1)]
    values, marks = decode(decode_ascii, bytes(data))
    cut_values, cut_marks = decode(decode_ascii, bytes(data), [min(cut, len(data)) for cut in cuts])
    assert cut_values == pytest.approx(values, nan_ok=True)
    assert cut_marks == marks


@given(damage=st.lists(st.integers(0, 240), max_size=5), cuts=st.lists(st.integers(0, 250), max_size=10))
def test_any_chunking_of_a_binary_stream_gives_the_same_samples(damage: list[int], cuts: list[int]) -> None:
    block = encode_binary(np.linspace(1e-6, 1e-2, 30))
    data = bytearray(STAMP + block + b"\xf0\xf2hello\xff\xff" + block + STAMP + block + STAMP + block)
    for position in damage:
        del data[min(position, len(data) - 1)]
    whole = decode(decode_binary, bytes(data))
    assert decode(decode_binary, bytes(data), [min(cut, len(data)) for cut in cuts]) == whole


@pytest.mark.parametrize(("text", "value"), [("3300m", 3.3), ("1k", 1000.0), ("2-3", 2e-3), ("100u", 1e-4), ("5", 5.0)])
def test_numbers_are_read_as_the_firmware_reads_them(text: str, value: float) -> None:
    assert number(text) == pytest.approx(value)
