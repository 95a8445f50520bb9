"""Pictures that are cut short, larger than they look, or something else."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from io import BytesIO
from random import Random

from fuzz_bytes import damaged


def odd_picture(data: bytes, rng: Random) -> bytes:
    """Return a changed picture, or one of another kind than its name says."""
    return rng.choice(_TRICKS)(data, rng)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _png(width: int, height: int, body: bytes, *more: bytes, bits: int = 8, colour: int = 2) -> bytes:
    head = struct.pack(">IIBBBBB", width & 0xFFFFFFFF, height & 0xFFFFFFFF, bits, colour, 0, 0, 0)
    chunks = (_chunk(b"IHDR", head), *more, _chunk(b"IDAT", body), _chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _png_bomb(_data: bytes, rng: Random) -> bytes:
    """A PNG of a few kilobytes that claims up to 4 billion pixels a side, with some or none of its rows."""
    side = rng.choice((0, 1, 9000, 9500, 13_400, 20_000, 65_535, 10**6, 2**31 - 1, 2**31, 2**32 - 1))
    return _png(side, rng.choice((1, side)), zlib.compress(bytes(rng.choice((0, 100, 3_000_000)))))


def _png_chunks(_data: bytes, rng: Random) -> bytes:
    """A good PNG with an odd chunk: text that unpacks to much, a palette of no size, an animation, a profile."""
    odd = (
        _chunk(b"zTXt", b"a\x00\x00" + zlib.compress(bytes(30_000_000))),
        _chunk(b"iTXt", b"a\x00\x01\x00\x00\x00" + zlib.compress(bytes(30_000_000))),
        _chunk(b"iCCP", b"a\x00\x00" + zlib.compress(bytes(3_000_000))),
        _chunk(b"PLTE", b""), _chunk(b"tRNS", b""), _chunk(b"acTL", struct.pack(">II", 2**31, 0)), _chunk(b"IHDR", b""),
        _chunk(b"fcTL", b"\x00"), _chunk(b"eXIf", b"MM\x00*\x00\x00\x00\x08"), _chunk(b"\x00\xff\xfe\x01", b""),
    )  # fmt: skip
    body = zlib.compress(b"".join(b"\x00" + bytes(9) for _ in range(3)))
    return _png(3, 3, body, rng.choice(odd), bits=rng.choice((8, 8, 1, 16, 3)), colour=rng.choice((2, 2, 0, 3, 6, 9)))


def _gif(_data: bytes, rng: Random) -> bytes:
    width, height = rng.choice(((0, 0), (65535, 65535), (1, 65535), (4, 4)))
    frame = b"," + struct.pack("<HHHH", rng.choice((0, 9)), 0, width, height) + b"\x00\x02\x02D\x01\x00;"
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\x80\x00\x00\x00\x00\x00\xff\xff\xff" + frame


def _tiff(_data: bytes, rng: Random) -> bytes:
    """A TIFF whose directory claims odd sizes, strips outside the file, or itself as the next one."""
    sizes = (0, 1, 8, 70_000, 2**31, 2**32 - 1)
    tags = {
        256: rng.choice(sizes), 257: rng.choice(sizes), 258: rng.choice((8, 1, 64, 0)),
        259: rng.choice((1, 5, 7, 8, 99)),
        262: rng.choice((1, 2, 3, 6, 99)), 273: rng.choice((8, 0, 2**32 - 1)), 277: rng.choice((1, 3, 4, 65535)),
        278: rng.choice(sizes), 279: rng.choice(sizes), 330: 8,
    }  # fmt: skip
    entries = b"".join(
        struct.pack("<HHII", tag, rng.choice((3, 4, 4, 5, 13)), rng.choice((1, 1, 1, 2**31)), value)
        for tag, value in tags.items()
    )
    return (
        b"II*\x00\x08\x00\x00\x00"
        + struct.pack("<H", len(tags))
        + entries
        + struct.pack("<I", rng.choice((0, 8, 2**31)))
    )


def _webp(data: bytes, rng: Random) -> bytes:
    size = rng.choice((0, 4, 2**31, 2**32 - 1))
    head = b"VP8X\x0a\x00\x00\x00\x10\x00\x00\x00" + b"\xff\xff\xff" * 2
    return b"RIFF" + struct.pack("<I", size) + b"WEBP" + (head if rng.random() < 0.5 else data[12:])


def _bmp(_data: bytes, rng: Random) -> bytes:
    sizes = (0, 1, -1, 70_000, 2**31 - 1, -(2**31))
    head = struct.pack(
        "<IiiHHIIiiII",
        40,
        rng.choice(sizes),
        rng.choice(sizes),
        1,
        rng.choice((1, 8, 24, 32, 99)),
        rng.choice((0, 1, 3, 9)),
        0,
        0,
        0,
        rng.choice((0, 2**31)),
        0,
    )
    return b"BM" + struct.pack("<IHHI", 54, 0, 0, rng.choice((54, 0, 2**31))) + head + bytes(100)


def _other(data: bytes, rng: Random) -> bytes:
    """Something else that Pillow or nobody knows: PostScript, an icon, text, a video, a mode no model takes."""
    from PIL import Image

    if rng.random() < 0.5:
        stream = BytesIO()
        mode = rng.choice(("1", "L", "P", "LA", "RGBA", "CMYK", "I;16", "F", "YCbCr", "LAB", "HSV", "I"))
        kind = {"CMYK": "TIFF", "F": "TIFF", "YCbCr": "TIFF", "LAB": "TIFF", "I": "TIFF"}.get(mode, "PNG")
        image = Image.new(mode if mode != "HSV" else "RGB", (5, 4))
        image.save(stream, kind)
        return damaged(stream.getvalue(), rng) if rng.random() < 0.5 else stream.getvalue()
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(touch x) system\n"
    svg = b"<svg xmlns='http://www.w3.org/2000/svg'/>"
    return rng.choice(
        (
            eps,
            svg,
            b"",
            b"\x00" * 9,
            b"BM",
            b"GIF89a",
            b"RIFF",
            b"II*\x00",
            b"P6 9999999 9999999 255\n",
            b"#!/bin/sh\n",
            data[::-1],
        )
    )


_TRICKS: tuple[Callable[[bytes, Random], bytes], ...] = (
    *(
        damaged,
        damaged,
        damaged,
        damaged,
        _png_bomb,
        _png_bomb,
        _png_chunks,
        _gif,
        _tiff,
        _tiff,
        _webp,
        _bmp,
        _other,
        _other,
    ),
)
