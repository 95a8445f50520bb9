"""Golden inputs and the source's answers to them: what a device proves a bundle with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ipj_edge.bundles.folder import opened_folder, opened_inside
from ipj_edge.bundles.manifest import GOLDEN_NAME, Bundle
from ipj_edge.bundles.sealed_files import seal_file
from ipj_edge.errors import BundleError, first_line
from ipj_edge.protocols import Array
from ipj_edge.samples.npz import ArchiveError, read_npz
from ipj_edge.values import TensorSpec

# Most bytes that golden inputs and answers may have together.
LIMIT_BYTES = 1 << 30


def write_golden(folder: Path, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
    """Write golden inputs and the source's outputs into a bundle's folder."""
    named = {f"in/{name}": value for name, value in inputs.items()}
    named |= {f"out/{name}": value for name, value in outputs.items()}
    np.savez_compressed(folder / GOLDEN_NAME, **named)  # type: ignore[arg-type]


def read_golden(folder: Path) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return golden inputs and the source's outputs by name.

    Raises:
        BundleError: missing, no plain file, unreadable, or larger than any of ours.
    """
    file = folder / GOLDEN_NAME
    try:
        with (
            opened_folder(folder) as opened,
            opened_inside(opened, GOLDEN_NAME, file) as descriptor,
            open(descriptor, "rb", closefd=False) as stream,
        ):
            arrays = read_npz(stream, limit_bytes=LIMIT_BYTES)
    except FileNotFoundError as error:
        raise BundleError(f"{file} is missing; copy the bundle again") from error
    except ArchiveError as error:
        raise BundleError(f"{file} cannot be read: {error}; copy the bundle again") from error
    return (
        {name[3:]: value for name, value in arrays.items() if name.startswith("in/")},
        {name[4:]: value for name, value in arrays.items() if name.startswith("out/")},
    )


def read_proving(bundle: Bundle) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return golden inputs and answers that are those of the manifest and fit it: what a proof is worth hangs on them.

    Raises:
        BundleError: they are not whole, or are for another model.
    """
    copy = seal_file(bundle, GOLDEN_NAME)
    try:
        with copy.path.open("rb") as stream:
            arrays = read_npz(stream, limit_bytes=LIMIT_BYTES)
    except (ArchiveError, OSError) as error:
        raise BundleError(f"{bundle.path / GOLDEN_NAME} cannot be read: {first_line(error)}") from error
    finally:
        copy.close()
    manifest = bundle.manifest
    wanted = {f"in/{spec.name}": spec for spec in manifest.inputs} | {f"out/{s.name}": s for s in manifest.outputs}
    if arrays.keys() != wanted.keys():
        odd = sorted(arrays.keys() ^ wanted.keys())[0]
        what = "lacks" if odd in wanted else "holds the unknown"
        raise BundleError(f"{bundle.path / GOLDEN_NAME} {what} {odd[:100]!a}: it proves another model")
    for name, spec in wanted.items():
        if not _fits(arrays[name], spec, manifest.golden_samples):
            raise BundleError(
                f"{bundle.path / GOLDEN_NAME}: {name!a} is {arrays[name].dtype} of shape {arrays[name].shape}; the "
                f"manifest says {spec.dtype} of {list(spec.shape)}, {manifest.golden_samples} samples"
            )
    return ({s.name: arrays[f"in/{s.name}"] for s in manifest.inputs},
            {s.name: arrays[f"out/{s.name}"] for s in manifest.outputs})  # fmt: skip


def _fits(array: Array, spec: TensorSpec, samples: int) -> bool:
    if array.dtype.name != spec.dtype or array.ndim != len(spec.shape):
        return False
    return all(
        have == samples if axis == spec.batch_axis else isinstance(want, str) or have == want
        for axis, (have, want) in enumerate(zip(array.shape, spec.shape, strict=True))
    )
