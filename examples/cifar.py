"""ResNet-20 and ResNet-56 for CIFAR-10, plain or with three exits.

The networks are those of He et al. 2016 (section 4.2) with parameter-free shortcuts (option A), laid out so that the
public weights of akamaster/pytorch_resnet_cifar10 (BSD-2) load by name::

    ipj-edge convert examples/cifar.py:resnet20 --weights resnet20-12fca82f.th --input image:1x3x32x32 …

Inputs are float (N, 3, 32, 32): pixels / 255, minus the mean (.485 .456 .406), over the deviation (.229 .224 .225).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from ipj_edge_compress import MultiExit

MEAN = np.array([0.485, 0.456, 0.406])
STD = np.array([0.229, 0.224, 0.225])


class Shortcut(nn.Module):
    """Option A: every second pixel, and zeros for the channels that the input lacks."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.margin = (outputs - inputs) // 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return half the resolution and the outputs' channels."""
        return functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.margin, self.margin))


class Block(nn.Module):
    """Two 3×3 convolutions around which the input is added."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity() if stride == 1 else Shortcut(inputs, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return relu(F(x) + shortcut(x))."""
        inner = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(inner)) + self.shortcut(x))


class ResNet(nn.Module):
    """Three groups of blocks with 16, 32 and 64 channels; 6·blocks + 2 layers."""

    def __init__(self, blocks: int, width: int = 16) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = _group(width, width, blocks, 1)
        self.layer2 = _group(width, 2 * width, blocks, 2)
        self.layer3 = _group(2 * width, 4 * width, blocks, 2)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.linear = nn.Linear(4 * width, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return logits (N, 10) of images (N, 3, 32, 32)."""
        x = torch.relu(self.bn1(self.conv1(image)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(self.flatten(self.pool(x)))


def _group(inputs: int, outputs: int, blocks: int, stride: int) -> nn.Module:
    return nn.Sequential(*(Block(outputs if i else inputs, outputs, 1 if i else stride) for i in range(blocks)))


def resnet8() -> nn.Module:
    """Return a ResNet-8: 12 million multiply-accumulates, under a tenth of ResNet-56's."""
    return ResNet(1)


def resnet14() -> nn.Module:
    """Return a ResNet-14: 26 million multiply-accumulates."""
    return ResNet(2)


def resnet20() -> nn.Module:
    """Return a ResNet-20: 41 million multiply-accumulates."""
    return ResNet(3)


def resnet56() -> nn.Module:
    """Return a ResNet-56: 126 million multiply-accumulates."""
    return ResNet(9)


def attach_exits(backbone: nn.Module) -> MultiExit:
    """Add exits behind ``layer1`` and ``layer2`` of one of these networks."""
    return MultiExit.attach(backbone, {"layer1": "auto", "layer2": "auto"}, example=torch.zeros(2, 3, 32, 32))


def load_public_weights(net: nn.Module, path: Path) -> nn.Module:
    """Load a checkpoint of akamaster/pytorch_resnet_cifar10, whose keys begin with ``module.``."""
    state = torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
    net.load_state_dict({key.removeprefix("module."): value for key, value in state.items()}, strict=True)
    return net.eval()


def load_images(folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Read images (n, 3, 32, 32), normalised, and labels from WebP sheets of 25 × 40 pictures.

    Args:
        folder: Holds ``train_0.webp`` …, ``test_0.webp`` … and ``train_labels.npy``, ``test_labels.npy``.
        part: ``train`` or ``test``.
    """
    from PIL import Image

    sheets = [np.asarray(Image.open(sheet).convert("RGB")) for sheet in sorted(folder.glob(f"{part}_*.webp"))]
    tiles = [sheet.reshape(25, 32, 40, 32, 3).swapaxes(1, 2).reshape(-1, 32, 32, 3) for sheet in sheets]
    pixels = (np.concatenate(tiles) / 255 - MEAN) / STD
    labels = np.load(folder / f"{part}_labels.npy").astype(np.int64)
    return np.ascontiguousarray(pixels.transpose(0, 3, 1, 2), dtype=np.float32), labels
