"""What early exit saves, measured: a network trained for it on MNIST, on three engines, heads and gates included.

    python benchmarks/early_exit.py [../shared/data] [--precision int8]

Trains a three-exit network (a few minutes on two cores), converts it for every target, certifies thresholds at
harm ≤ 1 % with 95 % confidence, and times single inferences of the tuned bundle against its own unsplit last exit, in
alternating rounds of one run. Goals: at least 4 times less time on one engine, 2.5 on each, and a saving within 15 %
of what the tuner expected.
"""

from __future__ import annotations

import argparse
import gzip
import statistics
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from torch import nn

import ipj_edge
from ipj_edge.conversion import ConvertRequest, convert
from ipj_edge.exits import TuneRequest
from ipj_edge.tuning import TuningOptions, tune_exits
from ipj_edge.values import Settings, TensorSpec

TARGETS = ("openvino-cpu", "onnxruntime-cpu", "tflite-cpu")
EXITS = ("exit_1", "exit_2", "final")
WEIGHTS = Path(tempfile.gettempdir()) / "ipj-edge-early-exit.pt"
TRAIN, EPOCHS, ROUNDS, CALLS = 24_000, 5, 12, 250


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
    net = Network()
    net.load_state_dict(torch.load(WEIGHTS, weights_only=True))
    return net.eval()


def images(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return float images (n, 1, 28, 28) in 0..1 and labels (n,)."""
    with gzip.open(folder / "mnist" / f"{name}-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(folder / "mnist" / f"{name}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8).astype(np.int64)
    return (pixels / 255).astype(np.float32), labels


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


def times(bundle: Path, x: np.ndarray) -> tuple[float, float]:
    """Return mean seconds of one inference, leaving early and with the unsplit program, in alternating rounds."""
    spent: tuple[list[float], list[float]] = ([], [])
    with ipj_edge.load(bundle, threads=1) as early, ipj_edge.load(bundle, threads=1, exits="off") as full:
        for number in range(ROUNDS):
            rows = x[(np.arange(CALLS) + number * CALLS) % len(x)]
            for model, found in zip((early, full), spent, strict=True):
                model.run(rows[:1])
                start = perf_counter()
                for row in rows:
                    model.run(row[None])
                found.append((perf_counter() - start) / CALLS)
    return statistics.median(spent[0]), statistics.median(spent[1])


def main() -> None:
    """Train, convert, certify, measure, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", nargs="?", default="../shared/data", type=Path)
    parser.add_argument("--precision", default="fp32", choices=["fp32", "int8"])
    parser.add_argument("--train", action="store_true", help="train again, also where weights of an earlier run are")
    chosen = parser.parse_args()
    (train_x, train_y), (test_x, test_y) = images(chosen.data, "train"), images(chosen.data, "t10k")
    if chosen.train or not WEIGHTS.exists():
        torch.save(train(train_x[:TRAIN], train_y[:TRAIN]).state_dict(), WEIGHTS)
    with tempfile.TemporaryDirectory() as folder:
        _measure(Path(folder), chosen.precision, (train_x, train_y), (test_x, test_y))


def _measure(
    folder: Path,
    precision: str,
    known: tuple[np.ndarray, np.ndarray],
    fresh: tuple[np.ndarray, np.ndarray],
) -> None:
    # Calibrated and tuned on images the network was not trained on, tested on the official test set.
    np.savez(folder / "cal.npz", image=known[0][-500:])
    np.savez(folder / "tune.npz", image=known[0][-20_000:], labels=known[1][-20_000:])
    request = ConvertRequest(
        source=f"{__file__}:build",
        targets=TARGETS,
        precisions=(precision,),  # type: ignore[arg-type]
        into=folder,
        inputs=(TensorSpec(name="image", shape=(1, 1, 28, 28), dtype="float32"),),
        meanings=dict.fromkeys(EXITS, "logits"),
        calibration=str(folder / "cal.npz"),
        name="mnist",
    )
    for outcome in convert(request):
        if outcome.bundle is None:
            raise outcome.error or RuntimeError(outcome.target)
        bundle = outcome.bundle.path
        options = TuningOptions(
            data=str(folder / "tune.npz"),
            request=TuneRequest(epsilon=0.01, delta=0.05),
            objective="seconds",
            settings=Settings(threads=1),
        )
        tuned = tune_exits(bundle, options).tuned
        expected = tuned.expected.cost / tuned.never.cost
        early_s, full_s = times(bundle, fresh[0])
        _report(outcome.target, bundle, fresh, early_s, full_s, expected)


def _report(
    target: str, bundle: Path, fresh: tuple[np.ndarray, np.ndarray], early_s: float, full_s: float, expected: float
) -> None:
    x, y = fresh
    with ipj_edge.load(bundle, threads=1) as early, ipj_edge.load(bundle, threads=1, exits="off") as full:
        left, whole = early.run(x), full.run(x)
    answer, reference = left.outputs["final"].argmax(1), whole.outputs["final"].argmax(1)
    harm = ((answer != y) & (reference == y)).mean()
    shares = np.bincount(left.exit_indices, minlength=3) / len(x)
    print(
        f"{target:<16} {1e6 * full_s:7.1f} µs unsplit, {1e6 * early_s:6.1f} µs leaving early: "
        f"{full_s / early_s:.2f}× less (expected {1 / expected:.2f}×); exits {shares.round(3).tolist()}; "
        f"accuracy {(answer == y).mean():.4f}, full {(reference == y).mean():.4f}; "
        f"harm {harm:.4f} (certified ≤ 0.01)"
    )


if __name__ == "__main__":
    main()
