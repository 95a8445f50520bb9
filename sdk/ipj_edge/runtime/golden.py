"""Golden inputs and the source's answers to them: what a device proves a bundle with."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ipj_edge.bundles.manifest import GOLDEN_NAME
from ipj_edge.errors import BundleError
from ipj_edge.protocols import Array


def write_golden(folder: Path, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
    """Write golden inputs and the source's outputs into a bundle's folder."""
    named = {f"in/{name}": value for name, value in inputs.items()}
    named |= {f"out/{name}": value for name, value in outputs.items()}
    np.savez_compressed(folder / GOLDEN_NAME, **named)  # type: ignore[arg-type]


def read_golden(folder: Path) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return golden inputs and the source's outputs by name.

    Raises:
        BundleError: missing or unreadable.
    """
    try:
        with (folder / GOLDEN_NAME).open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise BundleError(f"{folder / GOLDEN_NAME} cannot be read: {error}") from error
    return (
        {name[3:]: value for name, value in arrays.items() if name.startswith("in/")},
        {name[4:]: value for name, value in arrays.items() if name.startswith("out/")},
    )
