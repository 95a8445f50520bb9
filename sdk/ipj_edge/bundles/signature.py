"""Who vouches for a bundle: an Ed25519 signature over its manifest's digest, which covers every byte of the bundle.

It lies beside the manifest in ``signature.json``, so that a bundle can be signed after it was made, where the key is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from ipj_edge.bundles.folder import read_inside
from ipj_edge.errors import BundleError, ConfigError, MissingDependencyError
from ipj_edge.writing import write_file

SIGNATURE_NAME = "signature.json"
_LIMIT_BYTES = 1 << 12
_KEY_LIMIT_BYTES = 1 << 14
# What is signed begins with what it is, so that no signature of something else by the same key passes for one.
_PREFIX = b"ipj-edge bundle manifest sha256:"


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``signature.json``.

    Attributes:
        algorithm: How it was signed.
        digest: The manifest's digest, which is what was signed.
        signature: The signature, hexadecimal.
    """

    algorithm: Literal["ed25519"]
    digest: str
    signature: str


def read_private_key(file: str | Path) -> Any:
    """Read an Ed25519 private key: PEM (PKCS 8) without a password, as ``openssl genpkey -algorithm ed25519`` makes it.

    Raises:
        ConfigError: it cannot be read, or is no such key.
        MissingDependencyError: the extra ``sign`` is not installed.
    """
    serialization, ed25519 = _cryptography()
    raw = _key_bytes(file)
    try:
        key = serialization.load_pem_private_key(raw, password=None)
    except _refusals() as error:
        raise ConfigError(f"{file} is no Ed25519 private key in PEM without a password") from error
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise ConfigError(f"{file} is a private key of another kind: give an Ed25519 one")
    return key


def sign_bundle(folder: Path, digest: str, key: Any) -> None:
    """Write the signature of a bundle's manifest into its folder.

    Raises:
        DestinationError: it cannot be written.
    """
    signature = Signature(algorithm="ed25519", digest=digest, signature=key.sign(_PREFIX + digest.encode()).hex())
    write_file(folder / SIGNATURE_NAME, msgspec.json.format(msgspec.json.encode(signature), indent=1) + b"\n")


def check_signature(folder: Path, digest: str, key: str | Path | None) -> None:
    """Check that a signature, where there is one, names this manifest; with a key, that there is one made with it.

    Raises:
        BundleError: it does not, or there is none.
        ConfigError: the key cannot be read, or is no Ed25519 public key in PEM.
        MissingDependencyError: a key was given, and the extra ``sign`` is not installed.
    """
    public = None if key is None else _read_public_key(key)
    file = folder / SIGNATURE_NAME
    found = _read_signature(folder)
    if found is None:
        if public is not None:
            raise BundleError(f"{folder} is not signed: it has no {SIGNATURE_NAME}")
        return
    if found.digest != digest:
        raise BundleError(f"{file} signs another bundle; remove it, or copy the bundle again")
    if public is not None and not _is_by(public, found):
        raise BundleError(f"{file} was not made with the private half of {key}: the bundle is from somebody else")


def _read_signature(folder: Path) -> Signature | None:
    try:
        return msgspec.json.decode(read_inside(folder, SIGNATURE_NAME, _LIMIT_BYTES), type=Signature)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BundleError(f"{folder / SIGNATURE_NAME} is damaged: {error}; copy the bundle again") from error


def _read_public_key(file: str | Path) -> Any:
    serialization, ed25519 = _cryptography()
    raw = _key_bytes(file)
    try:
        key = serialization.load_pem_public_key(raw)
    except _refusals() as error:
        raise ConfigError(f"{file} is no Ed25519 public key in PEM") from error
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise ConfigError(f"{file} is a public key of another kind: give an Ed25519 one")
    return key


def _is_by(public: Any, signature: Signature) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        public.verify(bytes.fromhex(signature.signature), _PREFIX + signature.digest.encode())
    except (InvalidSignature, ValueError):
        return False
    return True


def _key_bytes(file: str | Path) -> bytes:
    try:
        with Path(file).open("rb") as stream:
            return stream.read(_KEY_LIMIT_BYTES)
    except OSError as error:
        raise ConfigError(f"cannot read the key {file}: {error.strerror}") from error


def _cryptography() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise MissingDependencyError("sign", "cryptography") from error
    return serialization, ed25519


def _refusals() -> tuple[type[Exception], ...]:
    from cryptography.exceptions import UnsupportedAlgorithm

    return (ValueError, TypeError, UnsupportedAlgorithm)
