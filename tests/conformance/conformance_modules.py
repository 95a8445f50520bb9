"""torch modules as users write them: layers, idioms and combinations that exporters have stumbled over.

Each entry is a factory for `ipj-edge convert`: ``conformance_modules.py:NAME``. Weights are seeded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Forward = Callable[..., Any]


class Written(nn.Module):
    """Layers with names, and a forward written as a function of the layers and the inputs."""

    def __init__(self, forward: Forward, **layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleDict(layers)
        self._forward = forward

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self._forward(self.layers, *inputs)


class Recurrent(nn.Module):
    """A recurrent layer and a linear one on its last step."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sequence, _ = self.layer(x)
        return self.head(sequence[:, -1])


class Attention(nn.Module):
    """torch's own multi-head attention over a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


class ManyOutputs(nn.Module):
    """A dictionary of outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.boxes, self.scores = nn.Linear(12, 4), nn.Linear(12, 7)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"boxes": self.boxes(x), "scores": self.scores(x).softmax(-1)}


class Residual(nn.Module):
    """A residual block with squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU6())
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(6, 2, 1), nn.SiLU(), nn.Conv2d(2, 6, 1), nn.Sigmoid()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.body(x)
        return x + inner * self.gate(inner)


class Buffers(nn.Module):
    """Normalisation with registered buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.2, 0.25, 0.3]).view(1, 3, 1, 1))
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv((x - self.mean) / self.std)


def _shuffled(x: torch.Tensor, groups: int) -> torch.Tensor:
    n, c, h, w = x.shape
    return x.view(n, groups, c // groups, h, w).transpose(1, 2).reshape(n, c, h, w)


def _turned(x: torch.Tensor) -> torch.Tensor:
    by = torch.tensor([[[1.0, 0.1, 0.0], [0.0, 0.9, 0.1]]]).expand(x.shape[0], -1, -1)
    return F.grid_sample(x, F.affine_grid(by, x.shape, align_corners=False), align_corners=False)


torch.manual_seed(0)  # some layers of the table are made with it

IMAGE, ROW, SEQUENCE = "x:1x6x10x12", "x:1x12", "x:1x9x16"


def _image(forward: Forward, **layers: nn.Module) -> tuple[Callable[[], nn.Module], str]:
    return (lambda: Written(forward, **layers)), IMAGE


def _row(forward: Forward, **layers: nn.Module) -> tuple[Callable[[], nn.Module], str]:
    return (lambda: Written(forward, **layers)), ROW


def _sequence(forward: Forward, **layers: nn.Module) -> tuple[Callable[[], nn.Module], str]:
    return (lambda: Written(forward, **layers)), SEQUENCE


def _layer(make: Callable[[], nn.Module], example: str = IMAGE) -> tuple[Callable[[], nn.Module], str]:
    return make, example


MODULES: Mapping[str, tuple[Callable[[], nn.Module], str]] = {
    "linear": _layer(lambda: nn.Linear(12, 5), ROW),
    "mlp_gelu": _layer(lambda: nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.Dropout(), nn.Linear(16, 5)), ROW),
    "conv": _layer(lambda: nn.Conv2d(6, 8, 3, padding=1)),
    "conv_same": _layer(lambda: nn.Conv2d(6, 8, 4, padding="same")),
    "conv_stride_dilated": _layer(lambda: nn.Conv2d(6, 8, 3, stride=2, dilation=2)),
    "conv_grouped": _layer(lambda: nn.Conv2d(6, 12, 3, groups=3)),
    "conv_depthwise": _layer(lambda: nn.Conv2d(6, 6, 3, groups=6)),
    "conv_reflect": _layer(lambda: nn.Conv2d(6, 8, 3, padding=1, padding_mode="reflect")),
    "conv_transposed": _layer(lambda: nn.ConvTranspose2d(6, 4, 3, stride=2, output_padding=1)),
    "conv1d": _layer(lambda: nn.Conv1d(9, 5, 3), SEQUENCE),
    "conv3d": _layer(lambda: nn.Conv3d(2, 3, 3), "x:1x2x5x6x7"),
    "batch_norm": _layer(lambda: nn.Sequential(nn.Conv2d(6, 8, 3), nn.BatchNorm2d(8), nn.ReLU())),
    "group_norm": _layer(lambda: nn.GroupNorm(3, 6)),
    "instance_norm": _layer(lambda: nn.InstanceNorm2d(6, affine=True)),
    "layer_norm": _layer(lambda: nn.LayerNorm(16), SEQUENCE),
    "rms_norm": _sequence(lambda _, x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)),
    "local_response_norm": _layer(lambda: nn.LocalResponseNorm(3)),
    "weight_norm": _layer(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(12, 5)), ROW),
    "spectral_norm": _layer(lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(12, 5)).eval(), ROW),
    "max_pool": _layer(lambda: nn.MaxPool2d(3, 2, padding=1, ceil_mode=True)),
    "average_pool": _layer(lambda: nn.AvgPool2d(3, 2, padding=1, count_include_pad=False)),
    "adaptive_pool": _layer(lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))),
    "adaptive_pool_uneven": _layer(lambda: nn.AdaptiveAvgPool2d((5, 4))),
    "global_max": _image(lambda _, x: x.amax((2, 3))),
    "upsample_nearest": _layer(lambda: nn.Upsample(scale_factor=2)),
    "upsample_bilinear": _layer(lambda: nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)),
    "upsample_corners": _layer(lambda: nn.Upsample(size=(15, 17), mode="bilinear", align_corners=True)),
    "pixel_shuffle": _layer(lambda: nn.Sequential(nn.Conv2d(6, 8, 1), nn.PixelShuffle(2))),
    "pixel_unshuffle": _layer(lambda: nn.PixelUnshuffle(2)),
    "channel_shuffle": _image(lambda _, x: _shuffled(x, 3)),
    "pad_reflect": _layer(lambda: nn.ReflectionPad2d((1, 2, 0, 1))),
    "pad_constant": _image(lambda _, x: F.pad(x, (1, 0, 2, 1), value=0.5)),
    "residual": _layer(Residual),
    "buffers": _layer(Buffers, "x:1x3x9x11"),
    "activations": _image(lambda _, x: F.hardswish(x) + F.mish(x) + F.elu(x) + F.leaky_relu(x, 0.2) + F.softplus(x)),
    "prelu": _layer(lambda: nn.PReLU(6)),
    "glu": _row(lambda m, x: F.glu(m["up"](x)), up=nn.Linear(12, 10)),
    "log_softmax": _row(lambda m, x: F.log_softmax(m["head"](x), -1), head=nn.Linear(12, 5)),
    "softmax_middle_axis": _image(lambda _, x: x.softmax(1)),
    "normalize": _row(lambda _, x: F.normalize(x, dim=-1)),
    "cosine_head": _row(lambda m, x: F.linear(F.normalize(x), F.normalize(m["head"].weight)), head=nn.Linear(12, 5)),
    "einsum": _sequence(lambda m, x: torch.einsum("bte,oe->bto", x, m["p"].weight), p=nn.Linear(16, 7)),
    "matmul_self": _sequence(lambda _, x: (x @ x.transpose(1, 2)).softmax(-1) @ x),
    "bilinear": _row(lambda m, x: m["b"](x, x.flip(-1)), b=nn.Bilinear(12, 12, 4)),
    "attention": _layer(Attention, SEQUENCE),
    "scaled_attention": _sequence(lambda _, x: F.scaled_dot_product_attention(x, x, x)),
    "causal_attention": _sequence(lambda _, x: F.scaled_dot_product_attention(x, x, x, is_causal=True)),
    "encoder_layer": _layer(lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), SEQUENCE),
    "lstm": _layer(lambda: Recurrent(nn.LSTM(16, 8, batch_first=True), 8), SEQUENCE),
    "lstm_both_ways": _layer(lambda: Recurrent(nn.LSTM(16, 8, batch_first=True, bidirectional=True), 16), SEQUENCE),
    "gru": _layer(lambda: Recurrent(nn.GRU(16, 8, num_layers=2, batch_first=True), 8), SEQUENCE),
    "embedding": _layer(
        lambda: nn.Sequential(nn.Embedding(50, 8), nn.Flatten(), nn.Linear(48, 3)), "x:1x6:int64:0..49"
    ),
    "one_hot": _layer(lambda: Written(lambda _, x: F.one_hot(x, 20).float().mean(1)), "x:1x6:int64:0..19"),
    "many_outputs": _layer(ManyOutputs, ROW),
    "tuple_output": _row(lambda _, x: (x.relu(), x.sum(-1, keepdim=True))),
    "arg_max": _row(lambda m, x: m["head"](x).argmax(-1), head=nn.Linear(12, 5)),
    "top_k": _row(lambda _, x: x.topk(3, -1)),
    "sort": _row(lambda _, x: x.sort(-1, descending=True).values),
    "cumulative_sum": _sequence(lambda _, x: x.cumsum(1)),
    "gather_last": _sequence(lambda _, x: x[:, -1]),
    "strided_slice": _image(lambda _, x: F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 1, 1))),
    "split_and_join": _image(lambda _, x: torch.cat([part.relu() for part in x.split([2, 4], 1)][::-1], 1)),
    "stack_and_mean": _image(lambda _, x: torch.stack([x, x.flip(-1)]).mean(0)),
    "masked_fill": _sequence(lambda _, x: x.masked_fill(x < 0, -5.0).softmax(-1)),
    "where": _row(lambda _, x: torch.where(x > 0, x * 2, x / 3)),
    "roll": _image(lambda _, x: x.roll((1, -2), (2, 3))),
    "unfold": _image(lambda _, x: F.unfold(x, 3, stride=2)),
    "grid_sample": _image(lambda _, x: _turned(x)),
    "standardised": _row(lambda _, x: (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)),
    "clamped_exp": _row(lambda _, x: x.clamp(-2, 2).exp().log1p()),
    "rounded": _row(lambda _, x: (x * 4).floor() / 4),
    "loop_over_steps": _sequence(
        lambda m, x: torch.stack([m["cell"](x[:, step]) for step in range(x.shape[1])], 1), cell=nn.Linear(16, 4)
    ),
}


def build(name: str) -> nn.Module:
    """Return a module with seeded weights, in evaluation mode."""
    torch.manual_seed(0)
    make, _ = MODULES[name]
    return make().eval()


def __getattr__(name: str) -> Any:
    """Give a factory by name, as `ipj-edge convert FILE:NAME` asks for it."""
    if name not in MODULES:
        raise AttributeError(name)
    return lambda: build(name)
