"""The seal that manifests and exits.json share."""

import hashlib

import msgspec
import pytest

from ipj_edge.bundles.seal import is_intact, sealed


class Part(msgspec.Struct, frozen=True):
    digest: str


class Record(msgspec.Struct, frozen=True):
    schema_version: int
    digest: str
    parts: tuple[Part, ...]


RECORD = Record(schema_version=1, digest="whatever was there", parts=(Part(digest="f" * 64),))


def test_the_digest_is_that_of_the_bytes_with_its_own_digits_set_to_zero() -> None:
    raw = sealed(RECORD)
    found = msgspec.json.decode(raw, type=Record).digest
    zeroed = raw.replace(found.encode(), b"0" * 64, 1)
    assert found == hashlib.sha256(zeroed).hexdigest()
    assert raw.startswith(b'{\n "schema_version": 1,\n "digest": "')
    assert is_intact(raw)


def test_a_digest_inside_a_part_is_left_alone_and_is_guarded() -> None:
    raw = sealed(RECORD)
    assert msgspec.json.decode(raw, type=Record).parts == RECORD.parts
    assert not is_intact(raw.replace(b"f" * 64, b"0" * 64))


@pytest.mark.parametrize("raw", [b"", b"{}", b'{"digest": "short"}', b'{"digest":"' + b"0" * 64 + b'"}', b"\xff\xfe"])
def test_bytes_without_a_seal_are_not_intact(raw: bytes) -> None:
    assert not is_intact(raw)
