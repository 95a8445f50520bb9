"""PPK2 bytes: the formula's test vectors, losses, realignment, and independence of how the stream is cut."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipj_edge.errors import ProbeReadError
from ipj_edge_probes.serial.ppk2.decode import (
    CODE_MASK,
    DEFAULT_OHM,
    ZEROS,
    Modifiers,
    Ppk2Stream,
    current_table,
    decode_words,
    has_own_constants,
    parse_metadata,
)
from ipj_edge_probes.serial.ppk2.emulator import Ppk2Faults, metadata_text


def words(count: int, first: int = 0, adc: int = 1000, level: int = 2) -> np.ndarray:
    index = np.arange(first, first + count)
    return ((adc + index % 7) | level << 14 | (index & 63) << 18 | 0x81 << 24).astype("<u4")


def decode_all(data: bytes, cuts: list[int] | None = None) -> tuple[list[int], int, int]:
    """Return (words, words lost, bytes discarded) of a stream cut into chunks at the given places."""
    state, got, lost, discarded = Ppk2Stream(), [], 0, 0
    edges = [0, *sorted(cuts or []), len(data)]
    for start, stop in itertools.pairwise(edges):
        chunk, state = decode_words(state, data[start:stop])
        got += chunk.words.tolist()
        lost += int(chunk.missing.sum())
        discarded += chunk.discarded_bytes
    return got, lost, discarded


@pytest.mark.parametrize(
    ("raw", "modifiers", "level", "counter", "logic", "microamps"),
    [
        ("e8030000", Modifiers(), 0, 0, 0x00, 42.599341),
        ("e8831481", Modifiers(), 2, 5, 0x81, 4348.332766),
        ("e8831481", Modifiers(gs=ZEROS), 2, 5, 0x81, 4329.587438),
    ],
)
def test_reference_samples_decode(
    raw: str, modifiers: Modifiers, level: int, counter: int, logic: int, microamps: float
) -> None:
    word = int.from_bytes(bytes.fromhex(raw), "little")
    assert (word >> 14 & 7, word >> 18 & 63, word >> 24) == (level, counter, logic)
    assert current_table(modifiers, 3.0)[word & CODE_MASK] * 1e6 == pytest.approx(microamps, rel=1e-7)


def test_full_scale_of_the_largest_range_is_absurd_with_default_gain_and_17_a_without() -> None:
    top = 4 << 14 | 0x3FFF
    assert current_table(Modifiers(), 3.0)[top] == pytest.approx(297, abs=1)
    assert current_table(Modifiers(gs=ZEROS), 3.0)[top] == pytest.approx(16.7, abs=0.1)


def test_ranges_that_do_not_exist_have_no_current() -> None:
    assert np.isnan(current_table(Modifiers(), 3.0)[5 << 14 :]).all()


def test_supply_shifts_the_current_by_its_offset() -> None:
    modifiers = Modifiers(s=(1e-6,) * 5)
    shift = current_table(modifiers, 5.0)[:100] - current_table(modifiers, 3.0)[:100]
    assert shift == pytest.approx(np.full(100, 2e-6))


def test_an_undamaged_stream_gives_all_words_but_the_first_and_the_newest() -> None:
    sent = words(300)
    got, lost, discarded = decode_all(sent.tobytes())
    assert got == sent[1:-1].tolist()
    assert (lost, discarded) == (0, 4)


def test_lost_words_are_counted_and_the_one_after_them_with_them() -> None:
    sent = words(300)
    got, lost, _ = decode_all(np.delete(sent, [100, 101, 102]).tobytes())
    assert lost == 3 + 1
    assert len(got) + lost == 298


@pytest.mark.parametrize("dropped", range(400, 408))
def test_a_dropped_byte_costs_few_words_and_no_wrong_value(dropped: int) -> None:
    sent = words(300)
    data = sent.tobytes()
    got, lost, _ = decode_all(data[:dropped] + data[dropped + 1 :])
    assert set(np.array(got) & CODE_MASK) <= set((sent & CODE_MASK).tolist())
    assert len(got) + lost == 298
    assert 1 <= lost <= 5


@pytest.mark.parametrize("torn", [1, 2, 3])
def test_a_stream_that_begins_inside_a_word_is_aligned(torn: int) -> None:
    sent = words(100)
    got, lost, discarded = decode_all(sent.tobytes()[torn:])
    assert got == sent[2:-1].tolist()
    assert (lost, discarded) == (0, 8 - torn)


@pytest.mark.parametrize("torn", [1, 2, 3])
def test_junk_before_a_torn_word_makes_no_wrong_value(torn: int) -> None:
    sent = words(100)
    got, _, _ = decode_all(b"\xa5" * torn + sent.tobytes()[torn:])
    assert set(got) <= set(sent.tolist())


def test_noise_without_any_alignment_gives_no_words() -> None:
    got, lost, _ = decode_all(b"\xff" * 1000)
    assert (got, lost) == ([], 0)


damage = st.lists(st.tuples(st.integers(0, 1199), st.sampled_from(["drop", "flip", "insert"])), max_size=6)


@given(damage=damage, cuts=st.lists(st.integers(0, 1200), max_size=12))
def test_any_chunking_of_any_stream_gives_the_same_words(damage: list[tuple[int, str]], cuts: list[int]) -> None:
    data = bytearray(words(300, first=17).tobytes())
    for position, kind in damage:
        if kind == "drop":
            del data[min(position, len(data) - 1)]
        elif kind == "insert":
            data.insert(position, 0x3A)
        else:
            data[min(position, len(data) - 1)] ^= 0x55
    whole = decode_all(bytes(data))
    assert decode_all(bytes(data), [min(cut, len(data)) for cut in cuts]) == whole


@given(
    bursts=st.lists(st.tuples(st.integers(0, 15), st.integers(1, 24)), max_size=8),
    adc=st.integers(0, 16000),
    level=st.integers(0, 4),
)
def test_lost_bytes_never_make_a_value_that_was_not_sent(bursts: list[tuple[int, int]], adc: int, level: int) -> None:
    sent = words(600, adc=adc, level=level)
    data = bytearray(sent.tobytes())
    for number, (where, size) in enumerate(bursts):
        start = 100 + number * 240 + where  # room to realign in between
        del data[start : start + size]
    got, lost, _ = decode_all(bytes(data))
    assert set(np.array(got) & CODE_MASK) <= set((sent & CODE_MASK).tolist())
    assert len(got) + lost == 598


@given(first=st.integers(20, 200), size=st.integers(1, 62))
def test_a_gap_of_up_to_62_words_is_counted_exactly(first: int, size: int) -> None:
    sent = words(300)
    _, lost, _ = decode_all(np.delete(sent, np.arange(first, first + size)).tobytes())
    assert lost == size + 1


def test_metadata_is_read_past_stale_samples() -> None:
    reply = words(33).tobytes()[1:] + metadata_text(Ppk2Faults(), 3300, 2).encode()
    modifiers = parse_metadata(reply)
    assert modifiers.r[0] == pytest.approx(1003.35)
    assert modifiers.s[4] == pytest.approx(2.9e-3)
    assert modifiers.vdd_mv == 3300
    assert has_own_constants(modifiers)


@pytest.mark.parametrize("value", ["-nan", "nan", "0", "0.0000", ""])
def test_a_value_that_is_zero_or_no_number_keeps_the_default(value: str) -> None:
    text = metadata_text(Ppk2Faults(), 3000, 1).replace("GS2: 0.080000000", f"GS2: {value}")
    assert parse_metadata(text.encode()).gs[2] == 1.0


def test_a_unit_without_constants_of_its_own_is_told_apart() -> None:
    modifiers = parse_metadata(metadata_text(Ppk2Faults(uncalibrated=True), 3000, 1).encode())
    assert modifiers.r == DEFAULT_OHM
    assert not has_own_constants(modifiers)


@pytest.mark.parametrize("reply", [b"", b"\x80\x81END", b"Calibrated: 1\nEND\n", b"Calibrated: 1\nR0: 5\nEND"])
def test_what_is_no_metadata_is_an_error(reply: bytes) -> None:
    with pytest.raises(ProbeReadError, match="metadata"):
        parse_metadata(reply)


def test_a_negative_resistance_is_an_error() -> None:
    text = metadata_text(Ppk2Faults(), 3000, 1).replace("R1: 101", "R1: -101")
    with pytest.raises(ProbeReadError, match="negative"):
        parse_metadata(text.encode())
