"""Checking the arrays given to a session against what its stage takes."""

from __future__ import annotations

import numpy as np

from ipj_edge.bundles.manifest import StageSpec
from ipj_edge.errors import InputError
from ipj_edge.protocols import Array, Feeds
from ipj_edge.values import Port


def check_feeds(stage: StageSpec, feeds: Feeds) -> None:
    """Refuse arrays that do not fit, with what was expected and what came.

    Sessions call this where a new set of shapes turns up or a call has failed, never on their fast path.

    Raises:
        InputError: an input is missing, is no array, or has another dtype or shape.
    """
    sizes: dict[str, int] = {}
    for port in stage.takes:
        if port.name not in feeds:
            expected = ", ".join(f"'{each.name}'" for each in stage.takes)
            raise InputError(f"input '{port.name}' is missing: expected {expected}, got {sorted(feeds)}")
        _check_array(port, feeds[port.name])
        _check_sizes(port, feeds[port.name], sizes)


def _check_array(port: Port, array: Array) -> None:
    if not isinstance(array, np.ndarray | np.generic):
        raise InputError(f"input '{port.name}' is a {type(array).__name__}: expected a numpy array")
    if array.dtype.name != port.dtype:
        raise InputError(f"input '{port.name}' has dtype {array.dtype.name}: expected {port.dtype}")


def _check_sizes(port: Port, array: Array, sizes: dict[str, int]) -> None:
    """Compare sizes one by one; a named size has to be the same wherever its name appears."""
    fits = array.ndim == len(port.shape)
    for stated, size in zip(port.shape, array.shape, strict=False):
        wanted = sizes.setdefault(stated, size) if isinstance(stated, str) else stated
        # A named size is at least 1; a stated one may be 0.
        fits = fits and wanted == size and (size > 0 or stated == 0)
    if not fits:
        known = tuple(sizes.get(size, size) if isinstance(size, str) else size for size in port.shape)
        expected = port.shape if array.ndim != len(port.shape) else known
        raise InputError(f"input '{port.name}' has shape {_shown(array.shape)}: expected {_shown(expected)}")


def _shown(shape: tuple[int | str, ...]) -> str:
    return "(" + ", ".join(str(size) for size in shape) + ")"
