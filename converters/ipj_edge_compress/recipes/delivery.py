"""What a run leaves: weights, programs, calibration inputs, trained ranges."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import torch
from torch import nn

from ipj_edge.protocols import Array
from ipj_edge.samples.data import Samples, digest
from ipj_edge.values import ActivationRange, TrainedRanges
from ipj_edge.writing import replacing, write_file
from ipj_edge_compress.exits.multi_exit import MultiExit, first
from ipj_edge_compress.quantize.training import grid_weights
from ipj_edge_compress.recipes.programs import export, export_all

PROGRAM = "model.pt2"
WEIGHTS = "model.safetensors"
RANGES = "quantization.json"
CALIBRATION = "calibration.npz"


class TrainedQuantization(msgspec.Struct, frozen=True, kw_only=True):
    """``quantization.json``: trained ranges, and the layers whose weights lie on their int8 grid."""

    ranges: TrainedRanges
    weights: tuple[str, ...]
    weight_grid: str = "int8, symmetric, one scale an output channel: max|w| / 127"


def deliver(
    module: nn.Module, name: str, calibration: Array, ranges: tuple[ActivationRange, ...], folder: Path
) -> tuple[str, ...]:
    """Write everything a conversion needs into a folder and return the names of the files.

    Args:
        module: The finished model.
        name: Name of its input.
        calibration: Inputs that ranges come from.
        ranges: Trained ranges; empty where nothing was trained for int8.
        folder: Where to.

    Raises:
        ModelError: torch.export cannot follow the model.
        DestinationError: a file cannot be written.
    """
    example = torch.from_numpy(calibration[:2])
    module.eval()
    _save_weights(module, folder / WEIGHTS)
    export(module, name, example, folder / PROGRAM)
    stages = _save_stages(module, example, folder) if isinstance(module, MultiExit) else ()
    _save_arrays(folder / CALIBRATION, {name: calibration})
    files = [WEIGHTS, PROGRAM, *stages, CALIBRATION]
    if ranges:
        sha256 = digest(Samples(arrays={name: calibration}, labels=None, count=len(calibration)))
        trained = TrainedRanges(calibration_sha256=sha256, activations=ranges)
        made = TrainedQuantization(ranges=trained, weights=tuple(grid_weights(module)))
        write_file(folder / RANGES, msgspec.json.format(msgspec.json.encode(made), indent=2))
        files.append(RANGES)
    return tuple(files)


class _StageProgram(nn.Module):
    """A stage with its head: returns logits, then the features for the next stage."""

    def __init__(self, stage: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.stage, self.head = stage, head
        self.training = stage.training

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return logits and features."""
        features = self.stage(*inputs)
        logits = self.head(first(features))
        return (logits, *features) if isinstance(features, tuple) else (logits, features)


def _save_stages(module: MultiExit, example: torch.Tensor, folder: Path) -> tuple[str, ...]:
    names = []
    given: tuple[torch.Tensor, ...] = (example,)
    with torch.no_grad():
        for index, (stage, head) in enumerate(zip(module.stages, module.heads, strict=True), start=1):
            names.append(f"stage_{index}.pt2")
            inputs = [f"feature_{place}" for place in range(len(given))]
            export_all(_StageProgram(stage, head).eval(), inputs, given, folder / names[-1])
            features = stage(*given)
            given = features if isinstance(features, tuple) else (features,)
    return tuple(names)


def _save_weights(module: nn.Module, path: Path) -> None:
    from safetensors.torch import save

    write_file(path, save({name: value.contiguous().clone() for name, value in module.state_dict().items()}))


def _save_arrays(path: Path, arrays: dict[str, Array]) -> None:
    with replacing(path) as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type] # numpy's stub takes a name for allow_pickle
