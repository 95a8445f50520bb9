"""ResNet-20 for CIFAR-10 with parameter-free shortcuts (He et al. 2016, section 4.2, option A).

Layer names are those of the public checkpoints (conv1, bn1, layer1..3, linear).
"""

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Two 3×3 convolutions; a shortcut that changes size takes every second pixel and pads with zeros."""

    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.stride, self.missing = stride, width - width_in

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        if self.missing:
            side = self.missing // 2
            x = functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, side, side))
        return functional.relu(x + y)


class ResNet20(nn.Module):
    """Three groups of three blocks, 16, 32 and 64 channels wide."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(*(Block(16, 16, 1) for _ in range(3)))
        self.layer2 = nn.Sequential(Block(16, 32, 2), Block(32, 32, 1), Block(32, 32, 1))
        self.layer3 = nn.Sequential(Block(32, 64, 2), Block(64, 64, 1), Block(64, 64, 1))
        self.linear = nn.Linear(64, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.bn1(self.conv1(image)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(functional.adaptive_avg_pool2d(x, 1).flatten(1))
