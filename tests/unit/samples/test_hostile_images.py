"""Images that are not what they say: one line, and no program is started."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
from PIL import Image

from ipj_edge.errors import ConfigError, InputError
from ipj_edge.samples.preprocess import check_rule, read_image
from ipj_edge.values import Preprocessing


def _png(width: int, height: int, *chunks: tuple[bytes, bytes]) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", head), *chunks, (b"IDAT", zlib.compress(bytes(100))), (b"IEND", b""))
    made = b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in parts
    )
    return b"\x89PNG\r\n\x1a\n" + made


@pytest.mark.parametrize("side", [10_000, 13_400, 65_535, 2**31 - 1])
def test_a_decompression_bomb_is_refused_before_it_is_unpacked(side: int, tmp_path: Path) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(_png(side, side))
    with pytest.raises(InputError, match="DecompressionBomb"):
        read_image(path)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b"GIF89a", _png(0, 0), _png(3, 3)[:40],
        _png(3, 3, (b"zTXt", b"a\0\0" + zlib.compress(bytes(30_000_000)))), b"II*\0\x08\0\0\0\xff\xff",
    ],
)  # fmt: skip
def test_what_is_no_whole_picture_is_one_line_that_names_the_file(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "odd.png"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"^cannot read the image .*odd\.png: [^\n]*$"):
        read_image(path)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "WEBP", "GIF", "TIFF"])
def test_pictures_of_every_known_format_are_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "picture"
    Image.new("RGB", (5, 4), (10, 20, 30)).save(path, kind)
    assert read_image(path).shape == (4, 5, 3)


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": (0, 8)}, {"size": (8, -1)}, {"size": (1 << 20, 8)}, {"mean": ()}, {"mean": (1.0, 2.0)},
        {"std": (1.0, 0.0, 1.0)}, {"std": (1e-320,)}, {"scale": float("nan")}, {"scale": 1e300},
        {"channels": "L", "std": (1.0, 1.0, 1.0)},
    ],
)  # fmt: skip
def test_preprocessing_that_no_image_can_be_brought_to_is_refused(wrong: dict) -> None:
    with pytest.raises(ConfigError):
        check_rule(Preprocessing(**{"size": (8, 8), **wrong}))
