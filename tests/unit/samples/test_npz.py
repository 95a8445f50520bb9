"""Archives of strangers: bounded in time and memory, one line for each thing that is wrong."""

import io
import struct
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from ipj_edge.errors import DataError
from ipj_edge.samples.npz import ArchiveError, read_npz
from ipj_edge.samples.reading import read


def _zip(members: dict[str, bytes], packing: int = zipfile.ZIP_DEFLATED) -> io.BytesIO:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", packing) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    made.seek(0)
    return made


def _header(text: str, version: bytes = b"\x01\x00") -> bytes:
    raw = text.encode() + b"\n"
    return b"\x93NUMPY" + version + struct.pack("<H" if version[0] == 1 else "<I", len(raw)) + raw


def _npy(descr: str = "'<f4'", shape: str = "(2, 3)", values: bytes = bytes(24)) -> bytes:
    return _header(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}") + values


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_what_numpy_writes_comes_back(write: object) -> None:
    arrays = {
        "x": np.arange(24, dtype=np.float32).reshape(2, 3, 4), "fortran": np.asfortranarray(np.eye(3, 5)),
        "scalar": np.float64(3.5), "none": np.zeros((0, 4), np.int8), "text": np.array(["cat", "dog"]),
        "in/deep name": np.array([True, False]),
    }  # fmt: skip
    made = io.BytesIO()
    write(made, **arrays)  # type: ignore[operator]
    made.seek(0)
    found = read_npz(made)
    assert found.keys() == arrays.keys()
    for name, value in arrays.items():
        np.testing.assert_array_equal(found[name], value)
        assert found[name].dtype == np.asarray(value).dtype
        found[name].flags.writeable = True


WRONG = {
    "no array": _zip({"x.npy": b"hello"}),
    "another file": _zip({"x.txt": _npy()}),
    "empty member": _zip({"x.npy": b""}),
    "giant claim": _zip({"x.npy": _npy(shape="(1000000, 1000000, 64)")}),
    "claim beyond 64 bits": _zip({"x.npy": _npy(shape="(99999999999999999999,)")}),
    "negative": _zip({"x.npy": _npy(shape="(-2, -3)")}),
    "too short": _zip({"x.npy": _npy(values=bytes(20))}),
    "too long": _zip({"x.npy": _npy(values=bytes(28))}),
    "objects": _zip({"x.npy": _npy("'|O'", "(1,)", b"cos\nsystem\n.")}),
    "structure": _zip({"x.npy": _npy("[('a','<f4')]")}),
    "dtype of shape": _zip({"x.npy": _npy("('<f4', (1000000,))")}),
    "bad dtype": _zip({"x.npy": _npy("'<q9'")}),
    "code": _zip({"x.npy": _npy("__import__('os')")}),
    "nested": _zip({"x.npy": _header("(" * 5000 + ")" * 5000)}),
    "version 3": _zip({"x.npy": _header("{}", b"\x03\x00")}),
    "axes": _zip({"x.npy": _npy(shape="(" + "1," * 60 + ")", values=bytes(4))}),
    "float shape": _zip({"x.npy": _npy(shape="(2.0, 3)")}),
    "lzma": _zip({"x.npy": _npy()}, zipfile.ZIP_LZMA),
    "bzip2": _zip({"x.npy": _npy()}, zipfile.ZIP_BZIP2),
    "no zip": io.BytesIO(b"PK\x03\x04" + bytes(100)),
    "nothing": io.BytesIO(b""),
}


@pytest.mark.parametrize("archive", WRONG.values(), ids=list(WRONG))
def test_what_is_wrong_is_one_line(archive: io.BytesIO, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError) as caught:
        read_npz(archive)
    assert "\n" not in str(caught.value)
    (tmp_path / "x.npz").write_bytes(archive.getvalue())
    with pytest.raises(DataError):
        read(str(tmp_path / "x.npz"), (), {}, ())


def test_a_bomb_is_refused_by_what_it_claims() -> None:
    bomb = _zip({f"{index}.npy": _npy(shape="(1000000, 25)", values=bytes(100_000_000)) for index in range(2)})
    assert len(bomb.getvalue()) < 1_000_000
    with pytest.raises(ArchiveError, match="claim"):
        read_npz(bomb, limit_bytes=150_000_000)


def test_flipped_bytes_never_end_in_another_error() -> None:
    random = np.random.default_rng(0)
    made = io.BytesIO()
    np.savez_compressed(made, x=random.standard_normal((8, 8)), labels=np.arange(8))
    whole = made.getvalue()
    for _ in range(1500):
        damaged = bytearray(whole)
        for place in random.integers(0, len(whole), 3):
            damaged[place] = random.integers(0, 256)
        with suppress(ArchiveError):  # anything else, or no error where nothing of importance was hit
            read_npz(io.BytesIO(bytes(damaged)), limit_bytes=1 << 20)


def test_an_encrypted_member_is_refused() -> None:
    raw = bytearray(_zip({"x.npy": _npy()}).getvalue())
    raw[6] |= 1
    raw[raw.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(ArchiveError, match="encrypted"):
        read_npz(io.BytesIO(bytes(raw)))
