"""The multi-exit network of the benchmarks and tests: ResNet-20 for CIFAR-10 with two early heads, as a torch module.

Weights: the trunk from akamaster/pytorch_resnet_cifar10 (BSD-2-Clause), the heads from the folder's three-exit ONNX
file; the module has the outputs of that file. He et al., "Deep Residual Learning for Image Recognition", 2015,
section 4.2, with parameter-free shortcuts (option A).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import numpy_helper
from PIL import Image
from torch import nn
from torch.nn import functional

from ipj_edge.protocols import ConversionTask, StageFiles
from ipj_edge.values import Precision, TensorSpec
from ipj_edge_converters.tflite.convert import ToTflite

EXITS = ("logits_exit1", "logits_exit2", "logits_final")
INPUTS = (TensorSpec(name="input", shape=("batch", 3, 32, 32), dtype="float32"),)
ONNX_FILE = "models/cifar10_resnet20/resnet20_cifar10_3exit.onnx"
TORCH_FILE = "models/cifar10_resnet20/resnet20-12fca82f.th"
_MEAN, _STD = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
# The first convolution of each head in the ONNX file, whose batch normalisation is folded in.
_HEADS = {"head1": ("e1", 375), "head2": ("e2", 381)}


class _Block(nn.Module):
    def __init__(self, taken: int, made: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(taken, made, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(made)
        self.conv2 = nn.Conv2d(made, made, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(made)
        self._stride, self._padding = stride, (made - taken) // 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        if self._stride > 1:
            x = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self._padding, self._padding))
        return functional.relu(y + x)


class _Head(nn.Module):
    def __init__(self, taken: int) -> None:
        super().__init__()
        self.c, self.c2, self.l = nn.Conv2d(taken, 64, 3, 2, 1), nn.Conv2d(64, 64, 3, 2, 1), nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.l(_pooled(functional.relu(self.c2(functional.relu(self.c(x))))))


class ResNet20Exits(nn.Module):
    """Returns the logits of all three exits."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        self.layer1, self.layer2, self.layer3 = _layer(16, 16, 1), _layer(16, 32, 2), _layer(32, 64, 2)
        self.linear = nn.Linear(64, 10)
        self.head1, self.head2 = _Head(16), _Head(32)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first = self.layer1(functional.relu(self.bn1(self.conv1(image))))
        second = self.layer2(first)
        return self.head1(first), self.head2(second), self.linear(_pooled(self.layer3(second)))


def _layer(taken: int, made: int, stride: int) -> nn.Sequential:
    return nn.Sequential(_Block(taken, made, stride), _Block(made, made, 1), _Block(made, made, 1))


def _pooled(x: torch.Tensor) -> torch.Tensor:
    return functional.adaptive_avg_pool2d(x, 1).flatten(1)


def network(data: Path) -> ResNet20Exits:
    """Return the network with its published weights, in evaluation mode."""
    saved = torch.load(data / TORCH_FILE, weights_only=True, map_location="cpu")["state_dict"]
    state = {name.removeprefix("module."): value for name, value in saved.items()}
    stored = onnx.load(data / ONNX_FILE).graph.initializer
    weights = {tensor.name: torch.from_numpy(numpy_helper.to_array(tensor).copy()) for tensor in stored}
    for head, (prefix, number) in _HEADS.items():
        for layer, at in (("c", number), ("c2", number + 3)):
            state[f"{head}.{layer}.weight"] = weights[f"onnx::Conv_{at}"]
            state[f"{head}.{layer}.bias"] = weights[f"onnx::Conv_{at + 1}"]
        state[f"{head}.l.weight"] = weights[f"{prefix}.l.weight"]
        state[f"{head}.l.bias"] = weights[f"{prefix}.l.bias"]
    module = ResNet20Exits()
    module.load_state_dict(state)
    return module.eval()


def images(data: Path, name: str) -> NDArray[np.float32]:
    """Return 1,000 normalised images, shape (1000, 3, 32, 32); name is ``test_0`` or ``train_0`` … ``train_3``."""
    with Image.open(data / "cifar10" / f"{name}.webp") as sheet:
        tiles = np.asarray(sheet.convert("RGB")).reshape(25, 32, 40, 32, 3).transpose(0, 2, 1, 3, 4)
    pixels = tiles.reshape(-1, 32, 32, 3).astype(np.float32) / 255
    return np.ascontiguousarray(((pixels - _MEAN) / _STD).transpose(0, 3, 1, 2))


class _Source:
    """The network as a source of the TFLite converter."""

    kind, name, file, sha256, precision, forms = "torch", "resnet20", "resnet20.py", "0" * 64, "fp32", ("torch",)
    inputs = INPUTS
    outputs = tuple(TensorSpec(name=name, shape=("batch", 10), dtype="float32") for name in EXITS)

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self.versions: dict[str, str] = {}

    def torch_module(self) -> nn.Module:
        return self._module


def tflite(data: Path, precision: Precision, into: Path) -> StageFiles:
    """Convert the network to one TFLite file; int8 is calibrated on 200 training images."""
    calibration = {"input": images(data, "train_0")[:200]} if precision == "int8" else None
    task = ConversionTask(
        source=_Source(network(data)), target="tflite-cpu", precision=precision, calibration=calibration, into=into
    )
    return ToTflite().convert(task)
