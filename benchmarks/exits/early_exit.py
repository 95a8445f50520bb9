"""What early exit saves, measured: a network trained for it on MNIST, on three engines, heads and gates included.

    python -m benchmarks.exits.early_exit [../shared/data] [--precision int8] [--train]

Trains a three-exit network (a few minutes on two cores), converts it for every target, certifies thresholds at
harm ≤ 1 % with 95 % confidence, and times single inferences of the tuned bundle against its own unsplit last exit, in
alternating rounds of one run. Goals: at least 4 times less time on one engine, 2.5 on each, and a saving within 15 %
of what the tuner expected.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from benchmarks.compress.shared import mnist
from benchmarks.exits.shared import EXITS, Case, Part, arguments, last_exit, measure, trained
from torch import nn

WEIGHTS = Path(tempfile.gettempdir()) / "ipj-edge-early-exit.pt"
TRAIN, EPOCHS = 24_000, 5


class Network(nn.Module):
    """A cheap first stage with a good head, then stages of growing cost: 1.3 %, 9 % and 100 % of 18.6 M MACs."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList(
            [
                nn.Sequential(_conv(1, 16, 5, 2), _conv(16, 24, 3, 2)),
                nn.Sequential(_conv(24, 48), _conv(48, 48)),
                nn.Sequential(_conv(48, 128), _conv(128, 128), _conv(128, 128)),
            ]
        )
        self.heads = nn.ModuleList([_head(24), _head(48), _head(128)])

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the logits of every exit."""
        answers = {}
        for name, stage, head in zip(EXITS, self.stages, self.heads, strict=True):
            image = stage(image)
            answers[name] = head(image)
        return answers


def _conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Module:
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2), nn.BatchNorm2d(outputs), nn.ReLU())


def _head(channels: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * 49, 10))


def build() -> nn.Module:
    """Return the network, with the weights trained last."""
    return trained(Network(), WEIGHTS)


def build_plain() -> nn.Module:
    """Return its last exit alone."""
    return last_exit(build())


def train(x: np.ndarray, y: np.ndarray) -> Network:
    """Train all exits together, later ones weighing more; a fixed seed."""
    torch.manual_seed(0)
    net, inputs, labels = Network(), torch.from_numpy(x), torch.from_numpy(y)
    optimizer = torch.optim.AdamW(net.parameters(), weight_decay=0.01)
    steps = EPOCHS * (len(x) // 128)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    start = perf_counter()
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(x))[: len(x) // 128 * 128].split(128):
            answers = net(inputs[rows]).values()
            weights = (0.5, 0.75, 1.0)
            loss = sum(w * nn.functional.cross_entropy(a, labels[rows]) for w, a in zip(weights, answers, strict=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    print(f"trained {EPOCHS} epochs on {len(x)} images in {perf_counter() - start:.0f} s")
    return net.eval()


def main() -> None:
    """Train, convert, certify, measure, print."""
    chosen = arguments(__doc__ or "")
    known, test = mnist(chosen.data, "train", 60_000), mnist(chosen.data, "t10k", 10_000)
    if chosen.train or not WEIGHTS.exists():
        torch.save(train(known[0][:TRAIN], known[1][:TRAIN]).state_dict(), WEIGHTS)
    # Calibrated and tuned on images the network was not trained on, tested on the official test set.
    case = Case(
        name="mnist",
        factory=f"{__file__}:build",
        plain=f"{__file__}:build_plain",
        calibration=known[0][-500:],
        tune=Part(known[0][-20_000:], known[1][-20_000:]),
        test=Part(*test),
    )
    measure(case, chosen.precision, goals=(4, 2.5))


if __name__ == "__main__":
    main()
