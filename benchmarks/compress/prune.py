"""Half the MACs of ResNet-20: what accuracy that costs after fine-tuning on 4,000 images, and what time it saves.

    python -m benchmarks.compress.prune [../shared/data] [--minutes 40] [--epochs 100] [--models DIR]
    python -m benchmarks.compress.prune --aside 500 --epochs 20 …                # compare settings, on training images

The original is the teacher; the images are shifted, mirrored and mixed, and it answers to each of them. Goals: at most
2 points, and at least 1.5 times less measured time on two targets. With ``--aside`` the last training images are left
out of the training and judge it: settings are chosen so, and the test images are not looked at.
"""

from __future__ import annotations

from argparse import Namespace
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from benchmarks.compress.shared import BLACK, Clock, Kept, OutOfTime, arguments, cifar, compare_on_targets, resnet
from torch import nn

from ipj_edge_compress import (
    ArrayBatches,
    PrunePlan,
    Teaching,
    TrainPlan,
    Variation,
    VariedImages,
    accuracy,
    distil,
    prune,
)
from ipj_edge_compress.cost.size import size_of
from ipj_edge_compress.training.plans import EpochFigures

SETTINGS: dict[str, Any] = {
    "epochs": 100, "criterion": "l1", "scope": "layer", "rounds": 1, "rate": 3e-3, "size": 64, "mix": 0.5, "patch": 0.5,
    "alpha": 1.0, "feature": 1.0, "aside": 0,
}  # fmt: skip
# Groups of the network whose features are compared with the original's.
GROUPS = {name: name for name in ("layer1", "layer2", "layer3")}
EXAMPLE = torch.zeros(2, 3, 32, 32)


def main() -> None:
    """Prune, fine-tune, convert, measure, print."""
    chosen = arguments(__doc__ or "", minutes=40, models=Path(), **SETTINGS)
    original = resnet(chosen.data, 20)
    settings = {name: getattr(chosen, name) for name in SETTINGS}
    try:
        net = half_of_resnet20(chosen.data, Kept(chosen.models), Clock(chosen.minutes), settings)
    except OutOfTime:
        print(f"the time cap of {chosen.minutes:g} minutes ended the fine-tuning: no figures")
        return
    was, now = size_of(original, EXAMPLE), size_of(net, EXAMPLE)
    widths = [layer.out_channels for name, layer in net.named_modules() if name.endswith("conv1")]
    print(f"MACs {was.macs:,} → {now.macs:,}, parameters {was.parameters:,} → {now.parameters:,}, channels {widths}")
    part, count = ("train", chosen.aside) if chosen.aside else ("test", 1000)
    images, labels = cifar.load_images(chosen.data / "cifar10", part)
    judge = ArrayBatches(images[-count:], labels[-count:], size=250)
    before, after = accuracy(original, judge), accuracy(net, judge)
    if chosen.aside:
        print(f"on {chosen.aside} training images kept aside: {before:.4f} → {after:.4f}")
        return
    lost = 100 * (before - after)
    print(
        f"accuracy {before:.4f} → {after:.4f}, {lost:.2f} points lost (goal: ≤ 2): {'met' if lost <= 2 else 'missed'}"
    )
    _time(original, net, images)


def half_of_resnet20(data: Path, kept: Kept, clock: Clock, settings: dict[str, Any] = SETTINGS) -> nn.Module:
    """Return the network at half of its MACs, taught by the original; made once for each setting."""
    images, labels = cifar.load_images(data / "cifar10", "train")
    count = len(images) - settings["aside"]
    name = "-".join(["prune", *map(str, settings.values())])
    bench = Bench(Namespace(**settings), images[:count], labels[:count], clock, kept.file(f"{name}.training.pt"))
    return kept.once(name, lambda: _pruned(resnet(data, 20), bench))


class Bench(NamedTuple):
    """What a pruning works with."""

    chosen: Namespace
    images: np.ndarray
    labels: np.ndarray
    clock: Clock
    checkpoint: Path | None


def _pruned(original: nn.Module, bench: Bench) -> nn.Module:
    chosen, net = bench.chosen, deepcopy(original)
    how = Variation(shift=4, mirror=True, mix=chosen.mix, patch=chosen.patch, margin=BLACK)
    varied = VariedImages(bench.images, bench.labels, how, size=chosen.size)
    teaching = Teaching(
        temperature=4.0, alpha=chosen.alpha, feature_weight=chosen.feature,
        features=GROUPS if chosen.feature else {},
    )  # fmt: skip
    epochs = chosen.epochs // chosen.rounds
    plan = TrainPlan(epochs=epochs, learning_rate=chosen.rate, schedule="one-cycle", precision="bf16")

    def tell(epoch: int, figures: EpochFigures) -> None:
        bench.clock.check()
        if epoch % 10 == 0:
            print(f"  epoch {epoch}: loss {figures.loss:.4f}, {figures.seconds:.1f} s", flush=True)

    def recover(net: nn.Module) -> None:
        place = bench.checkpoint and bench.checkpoint.with_suffix(f".{size_of(net, EXAMPLE).macs}.pt")
        distil(net, original, varied, plan, teaching=teaching, checkpoint=place, progress=tell)

    cut = PrunePlan(target=0.5, criterion=chosen.criterion, scope=chosen.scope, round_to=4, rounds=chosen.rounds)
    prune(net, EXAMPLE, cut, batches=ArrayBatches(bench.images, bench.labels, size=250), recover=recover)
    return net


def _time(original: nn.Module, net: nn.Module, images: np.ndarray) -> None:
    times = compare_on_targets({"original": original, "pruned": net}, images)
    gains = {target: one["original"] / one["pruned"] for target, one in times.items()}
    for target, gain in gains.items():
        slow, fast_s = times[target]["original"], times[target]["pruned"]
        print(f"  {target:<16} {1e6 * slow:8.1f} µs → {1e6 * fast_s:8.1f} µs: {gain:.2f}×")
    fast = sum(gain >= 1.5 for gain in gains.values())
    print(f"1.5 times less time on {fast} of {len(gains)} targets (goal: two): {'met' if fast >= 2 else 'missed'}")


if __name__ == "__main__":
    main()
