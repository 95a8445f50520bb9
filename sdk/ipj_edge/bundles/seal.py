"""The seal of a JSON record: its own sha256, taken over the file's bytes with the digest's 64 digits set to zero."""

from __future__ import annotations

import hashlib
import re

import msgspec

_ZERO_DIGEST = "0" * 64
_DIGEST = re.compile(rb'("digest": ")([0-9a-f]{64})(")')


def sealed(record: msgspec.Struct) -> bytes:
    """Return the bytes of a record's file, its field ``digest`` filled in; whatever that held before is replaced."""
    text = msgspec.json.encode(msgspec.structs.replace(record, digest=_ZERO_DIGEST))
    raw = msgspec.json.format(text, indent=1) + b"\n"
    return _with_digest(raw, _sha256(raw))


def is_intact(raw: bytes) -> bool:
    """Say whether a sealed file's bytes are those that were sealed; False where there is no digest at all."""
    found = _DIGEST.search(raw)
    return found is not None and _sha256(_with_digest(raw, _ZERO_DIGEST)) == found.group(2).decode()


def _with_digest(raw: bytes, digest: str) -> bytes:
    """Return the bytes with the first digest replaced: a record's own stands before those of its parts."""
    return _DIGEST.sub(rb"\g<1>" + digest.encode() + rb"\g<3>", raw, count=1)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
