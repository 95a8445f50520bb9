"""Exported programs: what converters open, without any model code."""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ipj_edge.errors import first_line
from ipj_edge.writing import write_file
from ipj_edge_compress.errors import ModelError


class _Named(nn.Module):
    """A module whose inputs have names."""

    def __init__(self, module: nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self.module = module
        self.training = module.training
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        signature = inspect.Signature([inspect.Parameter(name, kind) for name in names])

        def forward(*inputs: Any) -> Any:
            return self.module(*inputs)

        forward.__signature__ = signature  # type: ignore[attr-defined]
        self.forward = forward


def input_name(module: nn.Module) -> str:
    """Return the name of the first input of ``forward``; ``x`` where it has none of its own."""
    parameters = list(inspect.signature(module.forward).parameters.values())
    plain = [one for one in parameters if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    return plain[0].name if plain else "x"


def export(module: nn.Module, name: str, example: torch.Tensor, path: Path, *, largest_batch: int = 1024) -> None:
    """Write a module as ``.pt2``, with a dynamic batch.

    Args:
        module: A module with one input.
        name: Name of the input.
        example: Example input of two samples or more.
        path: Where to.
        largest_batch: Largest batch it has to take.

    Raises:
        ModelError: torch.export cannot follow the module.
        DestinationError: it cannot be written.
    """
    export_all(module, (name,), (example,), path, largest_batch=largest_batch)


def export_all(
    module: nn.Module, names: Sequence[str], examples: Sequence[torch.Tensor], path: Path, *, largest_batch: int = 1024
) -> None:
    """Write a module with several inputs; see `export`."""
    batch = torch.export.Dim("batch", min=1, max=largest_batch)
    shapes = {name: {0: batch} for name in names}
    whole = BytesIO()  # torch's own writer can end the process on a full disk
    logger = logging.getLogger("torch.export")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.export.export(_Named(module.eval(), names), tuple(examples), dynamic_shapes=shapes)
            torch.export.save(program, whole)
    except (RuntimeError, ValueError, TypeError, AssertionError, LookupError, AttributeError) as error:
        raise ModelError(f"torch.export cannot follow the model: {first_line(error)}") from error
    finally:
        logger.setLevel(level)
    write_file(path, whole.getbuffer())
