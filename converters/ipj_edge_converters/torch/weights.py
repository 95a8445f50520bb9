"""Weights files for factories: safetensors, or a state dict that torch reads with ``weights_only=True``."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from ipj_edge.errors import SourceError, typed_line
from ipj_edge.plugins import needs
from ipj_edge_converters.quiet import quiet


def load_weights(module: Any, path: Path) -> None:
    """Load a weights file into a module; every key has to fit.

    Raises:
        SourceError: no such file, not a weights file, or keys are missing, unexpected or misshaped.
    """
    if not path.is_file():
        raise SourceError(f"no weights file '{path}'")
    want = module.state_dict()
    state = _without_prefix(_state_dict(_read(path), path), want)
    problems = _mismatches(want, state)
    if problems:
        raise SourceError(f"'{path.name}' does not fit the model: {'; '.join(problems)}")
    module.load_state_dict(state, strict=False)


def _read(path: Path) -> Any:
    with needs("convert"):
        import torch
        from safetensors.torch import load_file
    try:
        with quiet():
            if path.suffix == ".safetensors":
                return load_file(path)
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise SourceError(
            f"'{path.name}' holds more than tensors, and unpickling it could run any code: "
            "save only the weights, with safetensors.torch.save_file(model.state_dict(), 'w.safetensors')"
        ) from error
    except Exception as error:  # a corrupt file fails anywhere in torch's reader
        raise SourceError(f"'{path.name}' cannot be read as weights: {typed_line(error)}") from error


def _state_dict(loaded: Any, path: Path) -> dict[str, Any]:
    """Return the state dict of what was read: the thing itself, or a checkpoint's ``state_dict``."""
    with needs("convert"):
        import torch
    if isinstance(loaded, dict) and isinstance(loaded.get("state_dict"), dict):
        loaded = loaded["state_dict"]
    if not isinstance(loaded, dict) or not all(isinstance(value, torch.Tensor) for value in loaded.values()):
        keys = f" with the keys {', '.join(map(str, list(loaded)[:8]))}" if isinstance(loaded, dict) else ""
        raise SourceError(f"'{path.name}' is not a state dict but a {type(loaded).__name__}{keys}")
    return loaded


def _without_prefix(state: dict[str, Any], want: dict[str, Any]) -> dict[str, Any]:
    """Drop the ``module.`` that DataParallel puts before every key, unless the model's own keys have it."""
    prefix = "module."
    if all(key.startswith(prefix) for key in state) and not all(key.startswith(prefix) for key in want):
        return {key.removeprefix(prefix): value for key, value in state.items()}
    return state


def _mismatches(want: dict[str, Any], got: dict[str, Any]) -> list[str]:
    # Batch normalisation's step counter plays no part in evaluation, and old checkpoints lack it.
    missing = [key for key in want if key not in got and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in got if key not in want]
    misshaped = [
        f"{key} is {tuple(got[key].shape)}, expected {tuple(want[key].shape)}"
        for key in want
        if key in got and got[key].shape != want[key].shape
    ]
    found = (("missing", missing), ("unexpected", unexpected), ("of another shape", misshaped))
    return [f"{what}: {_some(names)}" for what, names in found if names]


def _some(names: list[str], limit: int = 6) -> str:
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")
