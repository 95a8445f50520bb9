"""Checkpoints of training: written whole or not at all, and complete enough to go on bit for bit on the CPU."""

from __future__ import annotations

import random
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ipj_edge.errors import DestinationError
from ipj_edge.writing import write_file
from ipj_edge_compress.errors import TrainingError


def save_atomically(value: Any, path: Path) -> None:
    """Write with torch.save, whole or not at all: a kill leaves the old file.

    Raises:
        DestinationError: it cannot be written; the disk may be full.
    """
    whole = BytesIO()  # torch's own writer can end the process on a full disk
    torch.save(value, whole)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DestinationError(f"cannot write {path}: {error.strerror}") from error
    write_file(path, whole.getbuffer())


def load_checkpoint(path: Path) -> dict[str, Any] | None:
    """Return what a checkpoint holds, or None where there is none yet.

    Raises:
        TrainingError: the file is there and cannot be read.
    """
    if not path.exists():
        return None
    try:
        return dict(torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:  # a corrupt file fails anywhere in torch's reader
        raise TrainingError(f"the checkpoint {path} cannot be read: remove it to start over") from error


def random_states() -> dict[str, Any]:
    """Return the states of Python's, numpy's and torch's random generators."""
    version, words, gauss = random.getstate()
    name, key, *rest = np.random.get_state()
    states: dict[str, Any] = {
        "python": (version, list(words), gauss),
        "numpy": (name, torch.from_numpy(np.asarray(key, dtype=np.int64)), *rest),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def restore_random_states(states: dict[str, Any]) -> None:
    """Put the generators back."""
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    name, key, *rest = states["numpy"]
    np.random.set_state((name, key.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(states["torch"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states["cuda"])
