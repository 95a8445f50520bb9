"""Small networks with seeded weights, as factories for ``ipj-edge convert networks.py:NAME``."""

from __future__ import annotations

import torch
from torch import nn


class _Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(500, 32)
        self.place = nn.Parameter(0.3 * torch.randn(1, 12, 32))
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0)
        self.head = nn.Linear(32, 5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.embedding(ids) + self.place).mean(1))


class _Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.cell = kind(12, 24, batch_first=True)
        self.head = nn.Linear(24, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cell(x)[0][:, -1])


class _Two(nn.Module):
    """Two inputs, two outputs, a setting without a batch axis, an integer output."""

    def forward(self, left: torch.Tensor, right: torch.Tensor, gain: torch.Tensor) -> tuple[torch.Tensor, ...]:
        both = left[:, :4] * gain + right[:, 1:]
        return both, both.argmax(1)


def encoder() -> nn.Module:
    """Return a transformer encoder: ids (N, 12) below 500 to (N, 5)."""
    torch.manual_seed(0)
    return _Encoder()


def lstm() -> nn.Module:
    """Return an LSTM with a head: (N, 9, 12) to (N, 5)."""
    torch.manual_seed(0)
    return _Recurrent(nn.LSTM)


def gru() -> nn.Module:
    """Return a GRU with a head: (N, 9, 12) to (N, 5)."""
    torch.manual_seed(0)
    return _Recurrent(nn.GRU)


def two() -> nn.Module:
    """Return a model of two inputs and a scalar."""
    return _Two()


def conv() -> nn.Module:
    """Return three convolutions and a head: (N, 3, 6, 7) to (N, 5)."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 8, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 6 * 7, 5),
    )


class _Streaming(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRU(6, 5, num_layers=2, batch_first=True)

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.cell(x, state)


def streaming() -> nn.Module:
    """Return a GRU of two layers whose state is an input and an output: (1, 4, 6) and (2, 1, 5)."""
    torch.manual_seed(0)
    return _Streaming()
