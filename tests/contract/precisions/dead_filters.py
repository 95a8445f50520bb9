"""Networks with filters that are dead but for their bias, as pruning and folded normalisations leave them."""

from __future__ import annotations

import torch
from torch import nn


def _silence(layer, channels, bias, factor=0.0, axis=0):
    with torch.no_grad():
        for channel in channels:
            layer.weight.select(axis, channel).mul_(factor)
            layer.bias[channel] = bias
    return layer


class Pooled(nn.Module):
    def __init__(self, *layers, width=32):
        super().__init__()
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(width, 4)

    def forward(self, image):
        return self.head(self.layers(image).mean((2, 3)))


def _conv(channels=(2,), bias=0.8, factor=0.0):
    torch.manual_seed(0)
    layer = _silence(nn.Conv2d(3, 32, 3, padding=1), channels, bias, factor)
    return Pooled(layer, nn.ReLU() if bias > 0 else nn.Identity())


def zero():
    return _conv()


def millionth():
    return _conv(factor=1e-6)


def tiny():
    return _conv(factor=1e-12)


def several():
    return _conv(channels=(0, 5, 6, 31))


def negative():
    return _conv(bias=-0.8)


def large():
    return _conv(bias=1e3)


def depthwise():
    torch.manual_seed(0)
    first = nn.Conv2d(3, 32, 1)
    return Pooled(first, _silence(nn.Conv2d(32, 32, 3, padding=1, groups=32), (2, 9), 0.8), nn.ReLU())


def transposed():
    torch.manual_seed(0)
    return Pooled(_silence(nn.ConvTranspose2d(3, 32, 2, 2), (2,), 0.8, axis=1), nn.ReLU())


def linear():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), _silence(nn.Linear(126, 32), (2,), 0.8), nn.ReLU(), nn.Linear(32, 4))


def last():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(126, 32), nn.ReLU(), _silence(nn.Linear(32, 4), (1,), 0.8))


def all_dead():
    torch.manual_seed(0)
    layer = nn.Linear(126, 32)
    nn.init.zeros_(layer.weight)
    return nn.Sequential(nn.Flatten(), layer, nn.ReLU(), nn.Linear(32, 4))


def shared():
    """One layer read twice: its weights have two readers, of different ranges."""
    torch.manual_seed(0)
    layer = _silence(nn.Linear(126, 126), (2,), 0.8)
    return nn.Sequential(nn.Flatten(), layer, nn.ReLU(), layer, nn.Linear(126, 4))


class exits(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        first = nn.Sequential(_silence(nn.Conv2d(3, 8, 3, padding=1), (2,), 0.8), nn.ReLU())
        second = nn.Sequential(_silence(nn.Conv2d(8, 8, 3, padding=1), (3,), 0.8), nn.ReLU())
        self.stages = nn.ModuleList([first, second])
        self.heads = nn.ModuleList(
            nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)) for _ in range(2)
        )

    def forward(self, image):
        middle = self.stages[0](image)
        return self.heads[0](middle), self.heads[1](self.stages[1](middle))
