"""The streams of an ST X-NUCLEO-LPM01A: ASCII and binary samples, and the marks between them.

Formats: ST UM2269 Rev 6; the firmware's help text in mlcommons/tiny ``power_manager_lpm.py``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Bytes = NDArray[np.uint8]

SAMPLES_PER_STAMP = 1000
LINE_BYTES = 9  # 6409-07\r\n


class MarkKind(Enum):
    """What stands between samples."""

    STAMP = "time stamp"
    END = "end of the acquisition, or overcurrent"
    FAILURE = "failure reported by the meter"
    TEXT = "text without a meaning for the measurement"
    MISALIGNED = "bytes were lost and all samples since the last time stamp are in doubt"


@dataclass(frozen=True, kw_only=True)
class StreamMark:
    """One mark in a stream.

    Attributes:
        kind: What it is.
        position: Samples of the chunk that come before it.
        stamp_ms: Meter's time of a time stamp in milliseconds.
        buffer_share: How full the meter's buffer is at a time stamp, 0..1.
        text: What a text mark says.
    """

    kind: MarkKind
    position: int
    stamp_ms: int = 0
    buffer_share: float = 0.0
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class StreamChunk:
    """What a chunk of the stream holds.

    Attributes:
        values: Amperes, or joules per sample in energy mode, shape (n,); NaN for a sample that lost bytes.
        marks: Marks in order.
    """

    values: Array
    marks: tuple[StreamMark, ...]


@dataclass(frozen=True, kw_only=True)
class Lpm01aStream:
    """What decoding the next chunk has to know of the bytes before it.

    Attributes:
        remainder: Bytes that could not be decided on yet.
        aligned: Binary only: whether the remainder begins where a sample or a mark begins.
        before: Binary only: the byte before the remainder, which may turn out to begin a time stamp.
    """

    remainder: bytes = b""
    aligned: bool = True
    before: bytes = b""


_STAMP = re.compile(r"TimeStamp: *(\d+)s +(\d+)ms, buff +(\d+)%")
_VALUE = re.compile(r"(\d{4})([+-]\d{2})")
_END = re.compile(r"end|acquisition completed", re.IGNORECASE)
_FAILURE = re.compile(r"\berr|overcurrent|overflow|overrun", re.IGNORECASE)
_POWERS = 10.0 ** np.arange(100)


def decode_ascii(state: Lpm01aStream, data: bytes) -> tuple[StreamChunk, Lpm01aStream]:
    """Decode the ``ascii_dec`` format: ``6409-07`` is 6409e-7.

    Only whole lines are used. A line that holds more or less than values has lost bytes and gives NaN for each
    torn part, as mlcommons/tiny does. NUL bytes, which the firmware puts after a time stamp, are dropped.
    """
    text = (state.remainder + data).replace(b"\0", b"")
    end = text.rfind(b"\n") + 1
    buffer = np.frombuffer(text[:end], np.uint8)
    stops = np.flatnonzero(buffer == 10) + 1
    starts = np.concatenate(([0], stops[:-1])) if len(stops) else stops
    regular, values = _regular_lines(buffer, starts, stops)
    counts = regular.astype(np.int64)
    marks: list[StreamMark] = []
    torn: dict[int, list[float]] = {}
    for line in np.flatnonzero(~regular).tolist():
        content = text[starts[line] : stops[line]].decode("ascii", "replace").strip()
        parts = _torn_values(content)
        torn[line] = parts
        counts[line] = len(parts)
        if not parts and content:
            marks.append(_text_mark(content, line))
    before = np.concatenate(([0], np.cumsum(counts)))
    merged = np.empty(int(before[-1]))
    merged[before[:-1][regular]] = values
    for line, parts in torn.items():
        merged[before[line] : before[line] + len(parts)] = parts
    placed = tuple(_at(mark, int(before[mark.position])) for mark in marks)
    return StreamChunk(values=merged, marks=placed), Lpm01aStream(remainder=text[end:])


def _regular_lines(buffer: Bytes, starts: NDArray[np.intp], stops: NDArray[np.intp]) -> tuple[NDArray[np.bool_], Array]:
    """Find the lines that are one value and nothing else, and decode them at once."""
    regular = stops - starts == LINE_BYTES
    table = buffer[starts[regular][:, None] + np.arange(LINE_BYTES)]
    digits = table[:, (0, 1, 2, 3, 5, 6)].astype(np.int64) - ord("0")
    sign = table[:, 4]
    good = ((digits >= 0) & (digits <= 9)).all(axis=1) & ((sign == ord("-")) | (sign == ord("+")))
    good &= table[:, 7] == ord("\r")
    regular[regular] = good
    mantissa = digits[good, :4] @ np.array([1000, 100, 10, 1])
    scale = _POWERS[digits[good, 4] * 10 + digits[good, 5]]
    return regular, np.where(sign[good] == ord("-"), mantissa / scale, mantissa * scale)


def _torn_values(content: str) -> list[float]:
    """Return the values of an irregular line, NaN for torn ones; nothing for a line of text."""
    if not re.fullmatch(r"[\d+-]+", content):
        return []
    found = list(_VALUE.finditer(content))
    if not found:
        return [np.nan]
    values: list[float] = []
    position = 0
    for match in found:
        values += [np.nan] if match.start() > position else []
        values.append(float(f"{match[1]}e{match[2]}"))
        position = match.end()
    return values + ([np.nan] if position < len(content) else [])


def _text_mark(content: str, line: int) -> StreamMark:
    if stamp := _STAMP.search(content):
        seconds, milliseconds, percent = (int(group) for group in stamp.groups())
        return StreamMark(
            kind=MarkKind.STAMP, position=line, stamp_ms=seconds * 1000 + milliseconds, buffer_share=percent / 100
        )
    if _FAILURE.search(content):
        return StreamMark(kind=MarkKind.FAILURE, position=line, text=content)
    kind = MarkKind.END if _END.fullmatch(content) else MarkKind.TEXT
    return StreamMark(kind=kind, position=line, text=content)


def _at(mark: StreamMark, position: int) -> StreamMark:
    return StreamMark(
        kind=mark.kind,
        position=position,
        stamp_ms=mark.stamp_ms,
        buffer_share=mark.buffer_share,
        text=mark.text,
    )


ESCAPE, CLOSING = 0xF0, b"\xff\xff"
TAG_ERROR, TAG_TEXT, TAG_STAMP, TAG_END, TAG_OVERCURRENT = 0xF1, 0xF2, 0xF3, 0xF4, 0xF5
# Payloads that may hold FF themselves have a fixed length; the others run to the closing FF FF.
FIXED_PAYLOAD = {TAG_STAMP: 5, 0xF7: 2, 0xF8: 2}
MAX_PAYLOAD = 256
STAMP_BYTES = 9
STAMP_OVERFLOW = 1 << 31
_SIXTEENTHS = 16.0 ** -np.arange(16)


def decode_binary(state: Lpm01aStream, data: bytes) -> tuple[StreamChunk, Lpm01aStream]:
    """Decode the ``bin_hexa`` format: big-endian uint16, value = low 12 bits · 16^-(high 4 bits).

    High bits of 0xF open a mark ``F0 Fx … FF FF``. Marks have odd lengths, so nothing but counting keeps samples
    aligned: when a mark is not one, bytes were lost, and decoding goes on at the next time stamp.
    """
    buffer = state.before + state.remainder + data
    aligned, position, count = state.aligned, len(state.before), 0
    values: list[Array] = []
    marks: list[StreamMark] = []
    while True:
        if not aligned:
            position, aligned = _next_stamp(buffer, position)
            if not aligned:
                break
        samples = _samples(buffer, position)
        values.append(samples)
        count += len(samples)
        position += 2 * len(samples)
        size = _mark_size(buffer[position : position + MAX_PAYLOAD + 4])
        if size == 0:
            break
        if size < 0:
            marks.append(StreamMark(kind=MarkKind.MISALIGNED, position=count))
            # A time stamp at an odd distance shows first as the second half of a sample.
            position, aligned = max(position - 1, 0), False
            continue
        marks.append(_binary_mark(buffer[position : position + size], count))
        position += size
    merged = np.concatenate(values) if values else np.empty(0)
    left = Lpm01aStream(remainder=buffer[position:], aligned=aligned, before=buffer[max(position - 1, 0) : position])
    return StreamChunk(values=merged, marks=tuple(marks)), left


def _samples(buffer: bytes, position: int) -> Array:
    """Return the samples from a position up to the next mark."""
    words = np.frombuffer(buffer, ">u2", (len(buffer) - position) // 2, position)
    exponents = words >> 12
    escapes = np.flatnonzero(exponents == 0xF)
    end = int(escapes[0]) if len(escapes) else len(words)
    return np.asarray((words[:end] & 0xFFF) * _SIXTEENTHS[exponents[:end]], np.float64)


def _mark_size(head: bytes) -> int:
    """Return the size of the mark at the beginning of head, 0 when it is not all there, -1 when it is none."""
    if len(head) < 2:
        return 0
    if head[0] != ESCAPE or not TAG_ERROR <= head[1] <= 0xF9:
        return -1
    payload = FIXED_PAYLOAD.get(head[1])
    if payload is None:
        end = head.find(CLOSING, 2)
        if end < 0:
            return -1 if len(head) >= MAX_PAYLOAD + 4 else 0
        return end + 2
    if len(head) < payload + 4:
        return 0
    return payload + 4 if head[payload + 2 : payload + 4] == CLOSING else -1


def _next_stamp(buffer: bytes, position: int) -> tuple[int, bool]:
    """Return where the next time stamp begins; or from where to go on searching, and False."""
    opening = bytes((ESCAPE, TAG_STAMP))
    while (found := buffer.find(opening, position)) >= 0:
        if len(buffer) < found + STAMP_BYTES:
            return found, False
        if buffer[found + 7 : found + STAMP_BYTES] == CLOSING:
            return found, True
        position = found + 1
    return max(position, len(buffer) - 1), False


def _binary_mark(mark: bytes, position: int) -> StreamMark:
    tag, payload = mark[1], mark[2:-2]
    if tag == TAG_STAMP:
        stamp_ms = int.from_bytes(payload[:4], "big")
        if stamp_ms & STAMP_OVERFLOW:
            return StreamMark(kind=MarkKind.FAILURE, position=position, text="buffer overflow")
        return StreamMark(kind=MarkKind.STAMP, position=position, stamp_ms=stamp_ms, buffer_share=payload[4] / 100)
    text = payload.decode("ascii", "replace").strip()
    if tag == TAG_ERROR:
        return StreamMark(kind=MarkKind.FAILURE, position=position, text=text)
    if tag in (TAG_END, TAG_OVERCURRENT):
        return StreamMark(kind=MarkKind.END, position=position, text=f"mark {tag:02X}")
    return StreamMark(kind=MarkKind.TEXT, position=position, text=f"mark {tag:02X}")
