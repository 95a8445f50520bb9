"""Rounding as int8 engines do it; gradients pass straight through (Jacob et al. 2018; PACT, Choi et al. 2018)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

LEVELS = 255
WEIGHT_LIMIT = 127

Mode = Literal["watch", "round"]


def weight_scales(weight: torch.Tensor) -> torch.Tensor:
    """Return the scale of each output channel (axis 0): max|w| / 127; 1 for a channel of zeros."""
    largest = weight.detach().flatten(1).abs().amax(1)
    return torch.where(largest > 0, largest / WEIGHT_LIMIT, torch.ones_like(largest))


def integer_weights(weight: torch.Tensor) -> torch.Tensor:
    """Return a weight's symmetric int8 integers, per output channel, within −127..127."""
    scales = weight_scales(weight).reshape(-1, *[1] * (weight.ndim - 1))
    return torch.round(weight.detach() / scales).clamp(-WEIGHT_LIMIT, WEIGHT_LIMIT)


class OnGrid(nn.Module):
    """Puts a weight on its per-channel symmetric int8 grid; the gradient passes straight through."""

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        """Return the weight on its grid."""
        scales = weight_scales(weight).reshape(-1, *[1] * (weight.ndim - 1))
        return weight + (integer_weights(weight) * scales - weight).detach()


class RangePoint(nn.Module):
    """A place in the network where activations are rounded to 256 levels over a trained range.

    The range starts as what was seen; its ends are trained through the values they cut off, each by a factor exp(a).

    Attributes:
        mode: ``watch`` passes values through and widens what was seen, ``round`` rounds.
        seen_low: Smallest value seen.
        seen_high: Largest value seen.
    """

    seen_low: torch.Tensor
    seen_high: torch.Tensor
    first_low: torch.Tensor
    first_high: torch.Tensor

    def __init__(self, *, trained: bool = True) -> None:
        super().__init__()
        self.mode: Mode = "watch"
        self.grow_low = nn.Parameter(torch.zeros(()), requires_grad=trained)
        self.grow_high = nn.Parameter(torch.zeros(()), requires_grad=trained)
        for name in ("seen_low", "seen_high", "first_low", "first_high"):
            self.register_buffer(name, torch.zeros(()))
        self.forget()

    def forget(self) -> None:
        """Forget what was seen."""
        self.seen_low.fill_(float("inf"))
        self.seen_high.fill_(float("-inf"))

    def begin(self) -> None:
        """Begin to round, over the range seen so far, zero included."""
        self.first_low.copy_(self.seen_low.clamp(max=0.0))
        self.first_high.copy_(self.seen_high.clamp(min=0.0))
        self.mode = "round"

    @property
    def low(self) -> torch.Tensor:
        """Lower end of the range, at most 0."""
        return self.first_low * torch.exp(self.grow_low)

    @property
    def high(self) -> torch.Tensor:
        """Upper end of the range, at least 0."""
        return self.first_high * torch.exp(self.grow_high)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the values, rounded if that is the mode."""
        if self.mode == "watch":
            self.seen_low.copy_(torch.minimum(self.seen_low, x.detach().min()))
            self.seen_high.copy_(torch.maximum(self.seen_high, x.detach().max()))
            return x
        low, high = self.low, self.high
        scale = ((high - low).detach() / LEVELS).clamp_min(1e-12)
        zero_point = torch.round(-low.detach() / scale).clamp(0, LEVELS)
        within = torch.minimum(torch.maximum(x, low), high)
        rounded = (torch.round(within.detach() / scale + zero_point).clamp(0, LEVELS) - zero_point) * scale
        return within + (rounded - within).detach()
