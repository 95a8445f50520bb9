"""``exits.json``, the one file of a bundle that changes after publishing: write, read, check whom it belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ipj_edge.bundles.folder import read_inside
from ipj_edge.bundles.manifest import GOLDEN_NAME, Manifest
from ipj_edge.bundles.seal import is_intact, sealed
from ipj_edge.errors import BundleError, ConfigError
from ipj_edge.exits.policy.policies import check_policy
from ipj_edge.exits.policy.values import ExitsRecord, StageCosts, Tuned
from ipj_edge.protocols import ExitRule
from ipj_edge.values import EffectiveSettings, Meaning
from ipj_edge.writing import write_file

EXITS_NAME = "exits.json"
EXITS_VERSION = 1

_AGAIN = "tune the exits again with `ipj-edge exits tune`"


class _Header(msgspec.Struct):
    schema_version: int


def make_record(
    tuned: Tuned,
    costs: StageCosts,
    *,
    batch: int,
    created_with: Mapping[str, str],
    times: StageCosts | None = None,
) -> ExitsRecord:
    """Return what ``exits.json`` is to hold of a tuning.

    Args:
        tuned: What tuning found.
        costs: The costs it was given.
        batch: The batch size it was asked for.
        created_with: Version of ipj-edge and of every tool that took part.
        times: Seconds of every stage, for answers before a deadline.
    """
    return ExitsRecord(
        schema_version=EXITS_VERSION,
        created_with=dict(created_with),
        policy=tuned.policy,
        certificate=tuned.certificate,
        costs=costs,
        times=times,
        batch=batch,
        expected=tuned.expected,
        never=tuned.never,
    )


def write_exits(folder: Path, record: ExitsRecord) -> ExitsRecord:
    """Write ``exits.json`` into a bundle's folder; an old one is replaced at once or not at all.

    Returns:
        What was written: the record with its own digest.

    Raises:
        DestinationError: the folder cannot be written, or the disk is full.
    """
    text = sealed(record)
    write_file(folder / EXITS_NAME, text)
    return msgspec.json.decode(text, type=ExitsRecord)


def read_exits(folder: Path) -> ExitsRecord | None:
    """Read ``exits.json`` from a bundle's folder; None where there is none.

    Raises:
        BundleError: unreadable, damaged, changed by hand, or of an unknown version.
    """
    file = folder / EXITS_NAME
    try:
        raw = read_inside(folder, EXITS_NAME)
    except FileNotFoundError:
        return None
    try:
        version = msgspec.json.decode(raw, type=_Header).schema_version
        _check_version(file, version)
        record = msgspec.json.decode(raw, type=ExitsRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BundleError(f"{file} is damaged: {error}; {_AGAIN}") from error
    if not is_intact(raw):
        raise BundleError(f"{file} was changed after tuning, which voids its certificate; {_AGAIN}")
    return record


def check_record(
    record: ExitsRecord,
    rule: ExitRule,
    meanings: Sequence[Meaning],
    *,
    files: Mapping[str, str],
    settings: Mapping[str, str],
) -> None:
    """Check that a tuned policy belongs to these engine files, these settings and this model.

    Args:
        record: What ``exits.json`` holds.
        rule: The rule it names.
        meanings: What the output of every exit holds.
        files: sha256 of every engine file here, see `engine_files`.
        settings: The effective settings here, see `tuned_under`.

    Raises:
        BundleError: it does not; names what differs.
    """
    try:
        check_policy(record.policy, rule, meanings)
    except ConfigError as error:
        raise BundleError(f"{EXITS_NAME} does not belong to this model: {error}; {_AGAIN}") from error
    certificate = record.certificate
    _check_equal("file", certificate.files, files)
    _check_equal("setting", certificate.settings, settings)


def engine_files(manifest: Manifest) -> dict[str, str]:
    """Return the sha256 of every engine file of a bundle, by path: what a certificate names."""
    return {record.path: record.sha256 for record in manifest.files if record.path not in (GOLDEN_NAME, EXITS_NAME)}


def tuned_under(effective: Sequence[EffectiveSettings]) -> dict[str, str]:
    """Return the settings of all stages that can change an answer or its cost, as text: what a certificate names."""
    found: dict[str, str] = {}
    for name in ("engine", "engine_version", "execution_precision", "threads", "providers"):
        texts = [_text(getattr(stage, name)) for stage in effective]
        found[name] = texts[0] if len(set(texts)) == 1 else " | ".join(texts)
    return found


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _check_equal(what: str, then: Mapping[str, str], now: Mapping[str, str]) -> None:
    for name in sorted({*then, *now}):
        if then.get(name) != now.get(name):
            raise BundleError(
                f"{EXITS_NAME} was tuned with {what} {name} = {then.get(name, 'absent')}, here it is "
                f"{now.get(name, 'absent')}: its certificate is void; {_AGAIN}"
            )


def _check_version(file: Path, version: int) -> None:
    if version != EXITS_VERSION:
        raise BundleError(f"{file} has schema version {version}, this ipj-edge reads {EXITS_VERSION}; {_AGAIN}")
