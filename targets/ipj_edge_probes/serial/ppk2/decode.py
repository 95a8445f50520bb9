"""The bytes of a Nordic Power Profiler Kit II: words, loss by their counter, realignment, amperes.

Layout and formula: NordicSemiconductor/pc-nrfconnect-ppk 8da7626, ``src/device/serialDevice.ts``. A sample is a
little-endian uint32, 100,000 of them a second: bits 0-13 ADC, 14-16 range 0..4, 17 reserved, 18-23 counter, 24-31
logic inputs. Nothing marks where a word begins, so a lost byte shifts all that follows; the counter tells.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from ipj_edge.errors import ProbeReadError

Words = NDArray[np.uint32]
Counts = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Amps = NDArray[np.float64]

RATE_HZ = 100_000
RANGES = 5
WORD_BYTES = 4
VOLTS_PER_ADC_STEP = 1.8 / 163840
CODE_MASK = 0x1FFFF  # ADC and range together
TOP_CODE = 4 << 14 | 0x3FFF  # full scale of the largest range
# Consecutive words that must agree before an alignment is believed; by chance 4 steps agree once in 64^4.
ALIGNED_WORDS = 5
WINDOW_BYTES = ALIGNED_WORDS * WORD_BYTES

Five = tuple[float, float, float, float, float]
DEFAULT_OHM: Five = (1031.64, 101.65, 10.15, 0.94, 0.043)
ONES: Five = (1.0, 1.0, 1.0, 1.0, 1.0)
ZEROS: Five = (0.0, 0.0, 0.0, 0.0, 0.0)


class Modifiers(msgspec.Struct, frozen=True, kw_only=True):
    """Calibration constants of one unit, one value a range, named as in Nordic's application.

    Attributes:
        r: Shunt resistance in ohms.
        gs: Quadratic gain.
        gi: Linear gain.
        o: ADC offset in steps.
        s: Offset current per volt of supply, in amperes per volt.
        i: Offset current in amperes.
        ug: User's gain.
        vdd_mv: Supply the unit is set to, in millivolts as it sends it; None when it sent none.
    """

    r: Five = DEFAULT_OHM
    gs: Five = ONES
    gi: Five = ONES
    o: Five = ZEROS
    s: Five = ZEROS
    i: Five = ZEROS
    ug: Five = ONES
    vdd_mv: float | None = None


def parse_metadata(reply: bytes) -> Modifiers:
    """Read the reply to GET METADATA; bytes of an earlier stream in front of it are skipped.

    A value that is missing, zero or not a number leaves Nordic's default in place, as Nordic's application does;
    with zeros taken literally the figures would differ from its figures.

    Raises:
        ProbeReadError: this is no metadata, or has a resistance that cannot be.
    """
    start = reply.find(b"Calibrated:")
    text = reply[start:].decode("ascii", "replace") if start >= 0 else ""
    found = dict(re.findall(r"^(\w+):[ \t]*(\S*)\s*$", text, re.MULTILINE))
    if not all(f"R{n}" in found for n in range(RANGES)):
        raise ProbeReadError(f"the metadata of the PPK2 cannot be read: it begins {reply[:60]!r}")
    if any(_number(found[f"R{n}"]) < 0 for n in range(RANGES)):
        raise ProbeReadError("the metadata of the PPK2 holds a negative resistance")
    return Modifiers(
        r=_five(found, "R", DEFAULT_OHM),
        gs=_five(found, "GS", ONES),
        gi=_five(found, "GI", ONES),
        o=_five(found, "O", ZEROS),
        s=_five(found, "S", ZEROS),
        i=_five(found, "I", ZEROS),
        ug=_five(found, "UG", ONES),
        vdd_mv=_number(found.get("VDD", "")) or None,
    )


def has_own_constants(modifiers: Modifiers) -> bool:
    """Say whether the unit was calibrated.

    The line ``Calibrated:`` does not tell: units with factory constants send ``Calibrated: 0`` too. A unit
    without constants of its own would be read with quadratic gains of 1, far off in the large ranges.
    """
    return modifiers.r != DEFAULT_OHM and modifiers.gs != ONES


def current_table(modifiers: Modifiers, vdd_v: float) -> Amps:
    """Return the amperes of every code (range · 2^14 + ADC), shape (2^17,); NaN for the ranges that do not exist.

    x = (4·ADC − O)·(1.8/163840)/R;  I = UG·(x·(GS·x + GI) + S·VDD + I0).
    """
    table = np.full(CODE_MASK + 1, np.nan)
    adc = np.arange(1 << 14, dtype=np.float64)
    for n in range(RANGES):
        x = (4 * adc - modifiers.o[n]) * VOLTS_PER_ADC_STEP / modifiers.r[n]
        offset_a = modifiers.s[n] * vdd_v + modifiers.i[n]
        table[n << 14 : (n + 1) << 14] = modifiers.ug[n] * (x * (modifiers.gs[n] * x + modifiers.gi[n]) + offset_a)
    return table


@dataclass(frozen=True, kw_only=True)
class Ppk2Stream:
    """What decoding the next chunk has to know of the bytes before it.

    Attributes:
        remainder: Bytes that could not be decided on yet.
        counter: Counter of the last word handed out; None before the first.
        aligned: Whether the remainder begins where a word begins.
    """

    remainder: bytes = b""
    counter: int | None = None
    aligned: bool = False


@dataclass(frozen=True, kw_only=True)
class WordChunk:
    """Words decoded from a chunk.

    Attributes:
        words: Samples as sent, shape (n,).
        missing: Samples lost just before each word, modulo 64, shape (n,).
        discarded_bytes: Bytes skipped to find the alignment.
    """

    words: Words = field(default_factory=lambda: np.empty(0, np.uint32))
    missing: Counts = field(default_factory=lambda: np.empty(0, np.int64))
    discarded_bytes: int = 0


def decode_words(state: Ppk2Stream, data: bytes) -> tuple[WordChunk, Ppk2Stream]:
    """Cut a stream into words; any cutting of the stream into chunks gives the same words.

    The newest word is held back: when the one after it does not follow, a byte was lost in one of the two, and
    both are dropped and counted as lost.
    """
    buffer = np.frombuffer(state.remainder + data, np.uint8)
    counter, aligned, position, discarded = state.counter, state.aligned, 0, 0
    words: list[Words] = []
    missing: list[Counts] = []
    while True:
        if not aligned:
            skipped, aligned = _skip_to_alignment(buffer[position:])
            position += skipped
            discarded += skipped
            if not aligned:
                break
            # The counter sits in the third byte: the first word may have borrowed its ADC bytes from the wreck.
            position += WORD_BYTES
            discarded += WORD_BYTES
        run = _aligned_run(buffer[position:], counter)
        words.append(run.words)
        missing.append(run.missing)
        position += run.consumed_bytes
        counter, aligned = run.counter, run.aligned
        if aligned:
            break
        # The next alignment cannot begin where this one did.
        position += 1
        discarded += 1
    chunk = WordChunk(
        words=np.concatenate([_NO_WORDS, *words]),
        missing=np.concatenate([_NO_COUNTS, *missing]),
        discarded_bytes=discarded,
    )
    return chunk, Ppk2Stream(remainder=buffer[position:].tobytes(), counter=counter, aligned=aligned)


_NO_WORDS: Words = np.empty(0, np.uint32)
_NO_COUNTS: Counts = np.empty(0, np.int64)


@dataclass(frozen=True, kw_only=True)
class _Run:
    words: Words
    missing: Counts
    consumed_bytes: int
    counter: int | None
    aligned: bool


def _aligned_run(buffer: Bytes, counter: int | None) -> _Run:
    """Decode words from an aligned buffer up to where the alignment is lost or cannot be decided yet."""
    count = len(buffer) // WORD_BYTES
    words = np.frombuffer(buffer[: count * WORD_BYTES].tobytes(), "<u4").astype(np.uint32, copy=False)
    counters = (words >> 18 & 63).astype(np.int64)
    valid = (words >> 17 & 1 == 0) & (words >> 14 & 7 < RANGES)
    before = np.empty_like(counters)
    if count:
        before[0] = counters[0] - 1 if counter is None else counter
        before[1:] = counters[:-1]
    gaps = counters - before - 1 & 63
    end, lost = _first_misaligned(valid, gaps)
    # Hold the newest word back; drop it when the alignment was lost after it.
    keep = max(end - 1, 0)
    whole, missing = _drop_seams(words[:keep], gaps[:keep])
    return _Run(
        words=whole,
        missing=missing,
        consumed_bytes=keep * WORD_BYTES,
        counter=int(counters[keep - 1]) if keep else counter,
        aligned=not lost,
    )


def _drop_seams(words: Words, gaps: Counts) -> tuple[Words, Counts]:
    """Drop the first word after each gap: when whole multiples of four bytes are lost, it may be made of two."""
    seams = np.flatnonzero(gaps)
    if not len(seams):
        return words, gaps
    # A gap is only believed when four regular words follow, so the next word is there and has none of its own.
    gaps[seams + 1] = gaps[seams] + 1
    kept = np.ones(len(words), np.bool_)
    kept[seams] = False
    return words[kept], gaps[kept]


def _first_misaligned(valid: NDArray[np.bool_], gaps: Counts) -> tuple[int, bool]:
    """Return the first word that is not decided, and whether the alignment is lost there.

    A step in the counter is a plain loss when the words after it go on regularly, and a shift of bytes otherwise.
    """
    for bad in np.flatnonzero(~valid | (gaps != 0)):
        window = slice(bad, bad + ALIGNED_WORDS)
        if bad + ALIGNED_WORDS > len(gaps):
            return int(bad), False
        if not valid[window].all() or gaps[window][1:].any():
            return int(bad), True
    return len(gaps), False


def _skip_to_alignment(buffer: Bytes) -> tuple[int, bool]:
    """Return how many bytes to skip, and whether a believable word begins there."""
    starts = len(buffer) - WINDOW_BYTES + 1
    if starts <= 0:
        return 0, False
    high, low = buffer[2:], buffer[1:-1]
    counters = high >> 2
    valid = (high & 2 == 0) & (low >> 6 | (high & 1) << 2 < RANGES)
    believable = valid[:starts].copy()
    for step in range(1, ALIGNED_WORDS):
        here = slice(step * WORD_BYTES, step * WORD_BYTES + starts)
        previous = slice((step - 1) * WORD_BYTES, (step - 1) * WORD_BYTES + starts)
        believable &= valid[here] & (counters[here] - counters[previous] & 63 == 1)
    found = np.flatnonzero(believable)
    return (int(found[0]), True) if len(found) else (starts, False)


def _five(found: dict[str, str], key: str, default: Five) -> Five:
    values = [_number(found.get(f"{key}{n}", "")) or default[n] for n in range(RANGES)]
    return values[0], values[1], values[2], values[3], values[4]


def _number(text: str) -> float:
    """Return the number, or 0 for what is none: Nordic's application treats both alike."""
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) else 0.0
