"""Quantization-aware training against post-training quantization, on every engine: a small depthwise network.

    python -m benchmarks.compress.qat [../shared/data] [--minutes 15] [--epochs 30] [--models DIR]

Keyword spotting on the MLPerf Tiny features (800 to train, 200 to test). The network is of the kind that suffers from
int8: depthwise layers without an activation behind them, and channels whose sizes differ, as batch normalisation and
weight decay leave them (here by factors of up to 20, 13 and 8, put there by rescaling that changes no answer). The
goal: better than PTQ where PTQ loses a point or more, on all targets.
"""

from __future__ import annotations

import tempfile
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from benchmarks.compress.shared import TARGETS, Clock, Kept, OutOfTime, arguments, bundle_of, trained_ranges
from torch import nn

from ipj_edge_compress import ArrayBatches, Quantized, TrainPlan, accuracy, train, train_quantized

SPREAD_DECADES = (0.65, 0.55, 0.45)


class Separable(nn.Module):
    """A depthwise-separable network on (n, 1, 49, 10) features."""

    def __init__(self, width: int = 24, depth: int = 4) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            _normed(nn.Conv2d(1, width, (10, 4), stride=2, padding=(5, 1), bias=False)),
            nn.ReLU6(),
        ]
        for _ in range(depth):
            layers.append(_normed(nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False)))
            layers += [_normed(nn.Conv2d(width, width, 1, bias=False)), nn.ReLU6()]
        self.body = nn.Sequential(*layers)
        self.pool, self.linear = nn.AdaptiveAvgPool2d(1), nn.Linear(width, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits (n, 12)."""
        return self.linear(self.pool(self.body(x)).flatten(1))


def _normed(layer: nn.Conv2d) -> nn.Module:
    return nn.Sequential(layer, nn.BatchNorm2d(layer.out_channels))


def main() -> None:
    """Train, quantize after training and by training, convert both, print."""
    chosen = arguments(__doc__ or "", minutes=15, epochs=30, models=Path())
    clock, kept = Clock(chosen.minutes), Kept(chosen.models)
    x, y = features(chosen.data)
    test = np.arange(len(x)) % 5 == 0
    batches, held = ArrayBatches(x[~test], y[~test], size=32, seed=0), ArrayBatches(x[test], y[test], size=200)
    calibration = x[~test][:256]

    def trained() -> nn.Module:
        torch.manual_seed(0)
        net = Separable()
        train(net, batches, TrainPlan(epochs=chosen.epochs, learning_rate=5e-3, schedule="one-cycle"), progress=clock)
        return net

    def for_int8(net: nn.Module) -> Quantized:
        inputs = list(torch.from_numpy(calibration).split(64))
        return train_quantized(net, batches, inputs, TrainPlan(epochs=5, learning_rate=5e-4), progress=clock)

    try:
        net = kept.once(f"qat-{chosen.epochs}", trained)
        print(f"float {accuracy(net, held):.4f}, {int(test.sum())} test samples")
        for decades in SPREAD_DECADES:
            uneven = deepcopy(net)
            spread_channels(uneven, decades)
            made = kept.once(f"qat-{chosen.epochs}-{decades:g}", lambda uneven=uneven: for_int8(uneven))
            print(f"channels differ by up to {10 ** (2 * decades):.0f} times")
            _compare(uneven, made, Split(calibration, x[test], y[test], accuracy(net, held)))
    except OutOfTime:
        print(f"the time cap of {chosen.minutes:g} minutes ended it here")


class Split(NamedTuple):
    """Inputs to calibrate on, test data, and the float network's accuracy on it."""

    calibration: np.ndarray
    x: np.ndarray
    labels: np.ndarray
    full: float


def _compare(net: nn.Module, made: Quantized, split: Split) -> None:
    ranges = trained_ranges(made, split.calibration)
    with tempfile.TemporaryDirectory() as folder:
        data = str(Path(folder) / "test.npz")
        np.savez(data, x=split.x, labels=split.labels)
        for target in TARGETS:
            into = Path(folder)
            ptq = bundle_of(net, target, "int8", split.calibration, into, "ptq", data=data)
            qat = bundle_of(made.module, target, "int8", split.calibration, into, "qat", ranges=ranges, data=data)
            print(_line(target, split.full, ptq, qat), flush=True)


def _line(target: str, full: float, ptq: tuple, qat: tuple) -> str:  # type: ignore[type-arg]
    shown = [f"{one[1][1]:.4f}" if one[1] else f"refused ({one[2][:160]})" for one in (ptq, qat)]
    if not ptq[1] or not qat[1]:
        return f"  {target:<16} PTQ {shown[0]}, QAT {shown[1]}"
    lost = 100 * (full - ptq[1][1])
    verdict = "PTQ loses too little to tell" if lost < 1 else "met" if qat[1][1] > ptq[1][1] else "missed"
    return f"  {target:<16} PTQ {shown[0]}, QAT {shown[1]}; PTQ loses {lost:.1f} points: {verdict}"


def features(data: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return MFCC features (1000, 1, 49, 10), scaled to about ±1, and labels 0..11."""
    with np.load(data / "kws" / "mlperf_tiny_kws01.npz") as file:
        raw, labels = file["features_int8"].astype(np.float32), file["labels"].astype(np.int64)
    return ((raw - 83) * 0.5847029 / 64)[:, None].astype(np.float32), labels


def spread_channels(net: Separable, decades: float) -> None:
    """Scale channels between a depthwise layer and the next by up to so many decades: the function stays."""
    random = np.random.default_rng(0)
    blocks = [one for one in net.body if isinstance(one, nn.Sequential)]
    for depthwise, point in zip(blocks[1::2], blocks[2::2], strict=True):
        factor = torch.from_numpy(10 ** random.uniform(-decades, decades, depthwise[1].num_features)).float()
        with torch.no_grad():
            depthwise[1].weight *= factor
            depthwise[1].bias *= factor
            point[0].weight /= factor[None, :, None, None]


if __name__ == "__main__":
    main()
