"""Factories of models and data of recipes: the user's own program, trusted as such."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ipj_edge.errors import DataError, SourceError, message_lines, typed_line
from ipj_edge.protocols import Array


def build(location: str, weights: Path | None = None, *, seed: int = 0) -> nn.Module:
    """Call ``file.py:callable`` or ``package.module:callable`` and load weights into what it returns.

    Raises:
        SourceError: no such callable, it raised, or the weights do not fit.
    """
    place, _, attribute = location.rpartition(":")
    if not place:
        raise SourceError(f"'{location}' names no callable: write {location}:build for its function build()")
    module = import_place(place)
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise SourceError(f"'{location}': there is no callable '{attribute}' there")
    torch.manual_seed(seed)
    try:
        made = factory()
    except Exception as error:  # the user's code raises what it likes
        raise SourceError(f"'{location}' raised {typed_line(error)}") from error
    if not isinstance(made, nn.Module):
        raise SourceError(f"'{location}' returned {type(made).__name__}; expected a torch.nn.Module")
    if weights is not None:
        load_weights(made, weights)
    return made


def import_place(place: str) -> Any:
    """Import a Python file or a module; a file always gets the same module name, so that pickles find its classes.

    Raises:
        SourceError: it is not there or raised.
    """
    try:
        if not place.endswith(".py"):
            return importlib.import_module(place)
        path = Path(place).resolve()
        name = f"_ipj_edge_recipe_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
        if name in sys.modules:
            return sys.modules[name]
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise SourceError(f"no Python file '{place}'")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        sys.path.insert(0, str(path.parent))
        try:
            spec.loader.exec_module(module)
        finally:
            sys.path.remove(str(path.parent))
    except SourceError:
        raise
    except Exception as error:  # the user's code raises what it likes
        raise SourceError(f"'{place}' raised {typed_line(error)}") from error
    return module


def load_weights(module: nn.Module, path: Path) -> None:
    """Load a state dict (safetensors, or what torch reads with ``weights_only=True``); every key has to fit.

    Raises:
        SourceError: no such file, no state dict, or it does not fit.
    """
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
        state = state.get("state_dict", state)
        state = {key.removeprefix("module."): value for key, value in state.items()}
        module.load_state_dict(state)
    except FileNotFoundError as error:
        raise SourceError(f"no weights file '{path}'") from error
    except Exception as error:  # a corrupt file fails anywhere in its reader
        raise SourceError(f"'{path.name}' does not fit the model: {' '.join(message_lines(error))[:300]}") from error


def read_arrays(path: Path) -> tuple[Array, Array]:
    """Read one input array and ``labels`` from an ``.npz`` file.

    Raises:
        DataError: not there, not so, NaN, or of different lengths.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except FileNotFoundError as error:
        raise DataError(f"no such file: {path}") from error
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    labels = arrays.pop("labels", None)
    if labels is None or len(arrays) != 1:
        raise DataError(f"{path} holds {', '.join(arrays) or 'nothing'}; expected one input array and 'labels'")
    inputs = next(iter(arrays.values()))
    if len(inputs) != len(labels) or not len(inputs):
        raise DataError(f"{path}: {len(inputs)} samples and {len(labels)} labels; expected as many, at least one")
    if not np.isfinite(inputs).all():
        raise DataError(f"{path} holds NaN or infinity")
    return inputs, labels
