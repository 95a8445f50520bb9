"""That a bundle was proven on its device, where it could not be where it was made.

A bundle's manifest is sealed when it is published. What `verify` finds on the device goes into a small file beside
it, which names the manifest by its digest and is void for any other.
"""

from __future__ import annotations

import platform
from datetime import datetime, timezone

import msgspec

from ipj_edge.bundles.folder import read_inside
from ipj_edge.bundles.manifest import Bundle
from ipj_edge.errors import DestinationError
from ipj_edge.values import EffectiveSettings
from ipj_edge.writing import write_file

PROOF_NAME = "verified.json"
_PROXY = "proxy:"
_LIMIT_BYTES = 1 << 16


class DeviceProof(msgspec.Struct, frozen=True, kw_only=True):
    """Where and when `verify` passed.

    Attributes:
        digest: Digest of the manifest it passed for.
        machine: Network name of the machine.
        engine: Engine and version it ran in.
        utc: Date and time, ISO 8601.
    """

    digest: str
    machine: str
    engine: str
    utc: str


def stand_in(bundle: Bundle) -> str | None:
    """Return the target that proved a bundle in its own target's place, or None when its own did."""
    verified_on = bundle.manifest.parity.verified_on
    return verified_on.removeprefix(_PROXY) if verified_on.startswith(_PROXY) else None


def record_proof(bundle: Bundle, effective: EffectiveSettings) -> bool:
    """Record that a bundle proven by a stand-in passed here; False where its folder cannot be written."""
    if stand_in(bundle) is None:
        return False
    proof = DeviceProof(
        digest=bundle.manifest.digest,
        machine=platform.node(),
        engine=f"{effective.engine} {effective.engine_version}",
        utc=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )
    try:
        write_file(bundle.path / PROOF_NAME, msgspec.json.format(msgspec.json.encode(proof), indent=1) + b"\n")
    except DestinationError:
        return False
    return True


def read_proof(bundle: Bundle) -> DeviceProof | None:
    """Return the proof of this very bundle, or None where there is none that counts.

    Raises:
        BundleError: it is a link or no file, or larger than any proof.
    """
    try:
        proof = msgspec.json.decode(read_inside(bundle.path, PROOF_NAME, _LIMIT_BYTES), type=DeviceProof)
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return proof if proof.digest == bundle.manifest.digest else None


def missing_proof(bundle: Bundle) -> str:
    """Return what a reader of figures has to know of a bundle that was never proven on its device, or nothing."""
    proxy = stand_in(bundle)
    if proxy is None or read_proof(bundle) is not None:
        return ""
    target = bundle.manifest.target
    return f"proven on {proxy} only, never on '{target}' itself: run `ipj-edge verify {bundle.path}` on the device"
