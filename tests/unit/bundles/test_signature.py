"""Signed bundles: who vouches for a bundle is asked of a key, and of nothing inside the bundle."""

import shutil
from pathlib import Path

import pytest

from ipj_edge.bundles.bundle import open_bundle
from ipj_edge.bundles.signature import read_private_key, sign_bundle
from ipj_edge.errors import BundleError, ConfigError

pytest.importorskip("cryptography", reason="signing needs the extra 'sign'")

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

NAME = "digits.tflite-cpu.int8.ipj"


def _pem(private: object, folder: Path, name: str) -> Path:
    (folder / f"{name}.key").write_bytes(
        private.private_bytes(  # type: ignore[attr-defined]
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    (folder / f"{name}.pub").write_bytes(
        private.public_key().public_bytes(  # type: ignore[attr-defined]
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return folder / name


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    for name in ("ours", "theirs"):
        _pem(ed25519.Ed25519PrivateKey.generate(), tmp_path, name)
    _pem(ec.generate_private_key(ec.SECP256R1()), tmp_path, "curve")
    return tmp_path


@pytest.fixture
def signed(bundles: Path, keys: Path, tmp_path: Path) -> Path:
    copy = Path(shutil.copytree(bundles / NAME, tmp_path / "signed.ipj"))
    sign_bundle(copy, open_bundle(copy).manifest.digest, read_private_key(keys / "ours.key"))
    return copy


def test_a_signed_bundle_is_accepted_with_its_key_and_without(signed: Path, keys: Path) -> None:
    open_bundle(signed)
    open_bundle(signed, key=keys / "ours.pub")


def test_another_key_is_refused(signed: Path, keys: Path) -> None:
    with pytest.raises(BundleError, match="somebody else"):
        open_bundle(signed, key=keys / "theirs.pub")


def test_an_unsigned_bundle_is_refused_where_a_key_is_given(bundles: Path, keys: Path) -> None:
    with pytest.raises(BundleError, match="is not signed"):
        open_bundle(bundles / NAME, key=keys / "ours.pub")


def test_a_signature_of_another_bundle_is_refused_even_without_a_key(
    signed: Path, bundles: Path, tmp_path: Path
) -> None:
    other = Path(shutil.copytree(bundles / "digits.openvino-cpu.int8.ipj", tmp_path / "other.ipj"))
    shutil.copy(signed / "signature.json", other)
    with pytest.raises(BundleError, match="signs another bundle"):
        open_bundle(other)


@pytest.mark.parametrize(
    "content", ["", "{}", "[" * 100_000, "é" * 9000, '{"algorithm":"none","digest":"","signature":""}']
)
def test_a_damaged_signature_is_one_line(signed: Path, content: str) -> None:
    (signed / "signature.json").write_text(content)
    with pytest.raises(BundleError):
        open_bundle(signed)


def test_a_flipped_signature_is_refused(signed: Path, keys: Path) -> None:
    file = signed / "signature.json"
    text = file.read_text()
    place = text.index('"signature": "') + 20
    file.write_text(text[:place] + ("1" if text[place] != "1" else "2") + text[place + 1 :])
    with pytest.raises(BundleError, match="somebody else"):
        open_bundle(signed, key=keys / "ours.pub")


@pytest.mark.parametrize("name", ["curve.key", "ours.pub", "nothing", "."])
def test_what_is_no_private_key_is_said(keys: Path, name: str) -> None:
    with pytest.raises(ConfigError):
        read_private_key(keys / name)


@pytest.mark.parametrize("name", ["curve.pub", "ours.key", "nothing"])
def test_what_is_no_public_key_is_said(signed: Path, keys: Path, name: str) -> None:
    with pytest.raises(ConfigError):
        open_bundle(signed, key=keys / name)
