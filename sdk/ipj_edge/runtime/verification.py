"""Prove a bundle where it is: hashes, golden inputs through the target's own engine, effective settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ipj_edge.bundles.bundle import open_bundle
from ipj_edge.bundles.device_proof import record_proof
from ipj_edge.bundles.manifest import Bundle, OutputParity
from ipj_edge.errors import ParityError
from ipj_edge.protocols import Array
from ipj_edge.runtime.golden import read_proving
from ipj_edge.runtime.model import Model, open_model
from ipj_edge.runtime.parity import ParityCheck, allowances_of, compare
from ipj_edge.runtime.programs import check_later, open_all
from ipj_edge.values import EffectiveSettings, Settings, TensorSpec


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What `verify` found.

    Attributes:
        bundle: The bundle, every file of which has the recorded hash.
        outputs: Figures of every output on the golden inputs.
        requested: Settings asked for.
        effective: How each stage really runs here.
    """

    bundle: Bundle
    outputs: tuple[OutputParity, ...]
    requested: Settings
    effective: tuple[EffectiveSettings, ...]


def verify(
    path: str | Path,
    *,
    settings: Settings | None = None,
    digest: str | None = None,
    key: str | Path | None = None,
) -> Verification:
    """Check every file of a bundle and compare its answers to the golden inputs with its source's.

    Where the bundle could not be proven on its own target when it was made, its folder records that it is now.

    Args:
        path: The bundle's folder.
        settings: How to run it.
        digest: Accept only the bundle whose manifest has this digest.
        key: Public key file (PEM, Ed25519): accept only a bundle signed with it.

    Raises:
        BundleError: damaged, impossible, holding files that it does not record, or not the one asked for.
        TargetUnavailableError: the target cannot run it as requested.
        ParityError: it answers differently here.
    """
    requested = settings or Settings()
    bundle = open_bundle(path, digest=digest, key=key)
    check_later(bundle)
    inputs, reference = read_proving(bundle)
    with Model(bundle.manifest, open_all(bundle, requested), requested) as model:
        compared = _compared(bundle, bundle.manifest.outputs, reference, model.run_every_output(inputs))
        effective = model.effective
    if len(bundle.manifest.stages) > 1:
        # What runs where no early exit is wanted is a program of its own.
        with open_model(bundle, requested, exits="off") as whole:
            compared += _compared(bundle, whole.outputs, reference, whole.run_every_output(inputs))
    failures = tuple(failure for comparison in compared for failure in comparison.failures)
    if failures:
        raise ParityError(failures)
    record_proof(bundle, effective[0])
    return Verification(
        bundle=bundle,
        outputs=tuple(comparison.figures for comparison in compared[: len(bundle.manifest.outputs)]),
        requested=requested,
        effective=effective,
    )


def _compared(
    bundle: Bundle, specs: Sequence[TensorSpec], reference: Mapping[str, Array], answers: Mapping[str, Array]
) -> tuple[ParityCheck, ...]:
    record = bundle.manifest.parity
    return compare(
        specs,
        {spec.name: reference[spec.name] for spec in specs},
        answers,
        precision=bundle.manifest.precision,
        inputs="golden",
        tolerance=record.tolerance if record.loosened else None,
        allowances=allowances_of(bundle.manifest),
    )
