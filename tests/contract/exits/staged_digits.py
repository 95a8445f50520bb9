"""A small network with three exits for the digits example, written as any author may: stages, heads, forward."""

from pathlib import Path

import numpy as np
import torch
from torch import nn


class StagedDigits(nn.Module):
    """Three stages; each head pools its stage's features; the last is the full model's."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList([_stage(1, 8, 1), _stage(8, 24, 2), _stage(24, 48, 1)])
        self.heads = nn.ModuleList([_head(8, 8), _head(24, 4), _head(48, 4)])

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        answers = {}
        for number, (stage, head) in enumerate(zip(self.stages, self.heads, strict=True), 1):
            image = stage(image)
            answers["final" if number == len(self.heads) else f"exit_{number}"] = head(image)
        return answers


def _stage(inputs: int, outputs: int, stride: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1), nn.BatchNorm2d(outputs), nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, 1, 1), nn.BatchNorm2d(outputs), nn.ReLU(),
    )  # fmt: skip


def _head(channels: int, side: int) -> nn.Module:
    return nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(channels * (side // 2) ** 2, 10))


def build() -> nn.Module:
    return StagedDigits()


def train(train_file: Path, weights: Path) -> None:
    from safetensors.torch import save_file

    torch.manual_seed(0)
    with np.load(train_file) as file:
        x, y = torch.from_numpy(file["image"]), torch.from_numpy(file["labels"])
    net = build()
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(12):
        for rows in torch.randperm(len(x)).split(64):
            answers = net(x[rows])
            loss = sum(nn.functional.cross_entropy(logits, y[rows]) for logits in answers.values())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    save_file(net.state_dict(), weights)
