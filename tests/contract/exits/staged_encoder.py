"""A small transformer encoder with a head behind each of its layers; weights by seed."""

from __future__ import annotations

import torch
from torch import nn

from ipj_edge_compress import MultiExit


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(6, 16)
        self.position = nn.Parameter(torch.randn(9, 16))
        layer = {"dropout": 0.1, "activation": "gelu", "batch_first": True}
        self.layers = nn.Sequential(*(nn.TransformerEncoderLayer(16, 2, 32, **layer) for _ in range(3)))
        self.linear = nn.Linear(16, 5)

    def forward(self, steps: torch.Tensor) -> torch.Tensor:
        return self.linear(self.layers(self.embed(steps) + self.position).mean(1))


def build() -> MultiExit:
    torch.manual_seed(0)
    exits = {"layers.0": "linear", "layers.1": "linear"}
    return MultiExit.attach(Encoder(), exits, example=torch.zeros(2, 9, 6)).eval()
