"""Exit heads: from the features behind a stage to logits."""

from __future__ import annotations

import torch
from torch import nn

from ipj_edge_compress.errors import ModelError

# Features this large (pixels) are still local: a depthwise block looks at them before they are pooled.
_WIDE_PIXELS = 256
_DEPTHWISE_WIDTH = 64

KINDS = ("auto", "linear", "depthwise")


def make_head(kind: str, features: torch.Tensor, classes: int) -> nn.Module:
    """Make a head for features like these.

    Args:
        kind: ``linear`` is pooling and a linear layer; ``depthwise`` looks at the features with a depthwise block
            first; ``auto`` takes the latter where the features have 256 pixels or more.
        features: Example of the features: (n, channels, height, width), (n, steps, channels) or (n, channels).
        classes: Number of logits.

    Raises:
        ModelError: an unknown kind, or features of another rank.
    """
    if kind not in KINDS:
        raise ModelError(f"unknown head '{kind}'; known: {', '.join(KINDS)}, or a module of your own")
    if features.ndim == 4:
        channels, pixels = features.shape[1], features.shape[2] * features.shape[3]
        wide = pixels >= _WIDE_PIXELS if kind == "auto" else kind == "depthwise"
        return _depthwise(channels, classes) if wide else _pooled(channels, classes)
    if kind == "depthwise":
        raise ModelError(f"a depthwise head needs features (n, channels, height, width); got {tuple(features.shape)}")
    if features.ndim == 3:
        return SequenceHead(features.shape[2], classes)
    if features.ndim == 2:
        return nn.Linear(features.shape[1], classes)
    raise ModelError(f"no head for features of shape {tuple(features.shape)}: give a module of your own")


def _pooled(channels: int, classes: int) -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def _depthwise(channels: int, classes: int) -> nn.Module:
    width = max(channels, _DEPTHWISE_WIDTH)
    return nn.Sequential(
        nn.Conv2d(channels, channels, 3, stride=2, padding=1, groups=channels, bias=False),
        nn.BatchNorm2d(channels),
        nn.Conv2d(channels, width, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)),
    )


class SequenceHead(nn.Module):
    """Mean over the steps of a sequence, layer norm, linear: (n, steps, channels) to (n, classes)."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(channels), nn.Linear(channels, classes)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        return self.linear(self.norm(features.mean(1)))
