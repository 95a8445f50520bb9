"""Damage that needs no knowledge of the format: bytes flipped, cut off, doubled, moved, numbers replaced."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
NUMBERS = (
    *("-1", "0", "1", "2147483648", "4294967296", "9223372036854775807", "9223372036854775808", "-9223372036854775809"),
    *("1e999", "-1e999", "1e-320", "NaN", "nan", "inf", "Infinity", "0x10", "1_000", "00", "1" * 5000, "0.1", "-0.0"),
)


def damaged(data: bytes, rng: Random) -> bytes:
    """Return the bytes with one to four kinds of damage."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = rng.choice(_ALL)(data, rng)
    return data


def flip_bits(data: bytes, rng: Random) -> bytes:
    """Flip one bit to some dozens."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16, 64)) if changed else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _set_bytes(data: bytes, rng: Random) -> bytes:
    """Overwrite a word with one that stands at a limit."""
    word = rng.choice((b"\x00", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80", b"\xff" * 8))
    place = rng.randrange(len(data) + 1)
    return data[:place] + word + data[place + len(word) :]


def _truncate(data: bytes, rng: Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _duplicate(data: bytes, rng: Random) -> bytes:
    start, stop = _span(data, rng)
    return data[:stop] + data[start:stop] * rng.choice((1, 2, 50)) + data[stop:]


def _remove(data: bytes, rng: Random) -> bytes:
    start, stop = _span(data, rng)
    return data[:start] + data[stop:]


def _splice(data: bytes, rng: Random) -> bytes:
    start, stop = _span(data, rng)
    place = rng.randrange(len(data) + 1)
    return data[:place] + data[start:stop] + data[place + stop - start :]


def _insert(data: bytes, rng: Random) -> bytes:
    place = rng.randrange(len(data) + 1)
    odd = (
        b"\x00",
        b"\x1b[2J",
        b"\xff\xfe",
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
        b"\r",
        b"\n\n",
        b"[" * 3000,
        rng.randbytes(9),
    )
    return data[:place] + rng.choice(odd) + data[place:]


def _number(data: bytes, rng: Random) -> bytes:
    """Replace a number that is written in digits."""
    found = list(_NUMBER.finditer(data))
    if not found:
        return flip_bits(data, rng)
    place = rng.choice(found)
    return data[: place.start()] + rng.choice(NUMBERS).encode() + data[place.end() :]


def _span(data: bytes, rng: Random) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice((1, 2, 8, 64, 1000)))


_ALL: tuple[Callable[[bytes, Random], bytes], ...] = (
    *(flip_bits, flip_bits, _set_bytes, _truncate, _duplicate, _remove, _splice, _insert, _number, _number),
)
