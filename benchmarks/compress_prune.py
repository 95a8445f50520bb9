"""Half the MACs of ResNet-20: what accuracy that costs after fine-tuning on 4,000 images, and what time it saves.

    python benchmarks/compress_prune.py [../shared/data] [--minutes 40] [--epochs 150] [--models DIR]
    python benchmarks/compress_prune.py --aside 500 --epochs 20 …                # compare settings, on training images

The original is the teacher; the images are shifted, mirrored and mixed, and it answers to each of them. Goals: at most
2 points, and at least 1.5 times less measured time on two targets. With ``--aside`` the last training images are left
out of the training and judge it: settings are chosen so, and the test images are not looked at.
"""

from __future__ import annotations

from argparse import Namespace
from copy import deepcopy
from pathlib import Path

import torch
from compress_bench import BLACK, Clock, Kept, OutOfTime, arguments, cifar, compare_on_targets, resnet
from torch import nn

from ipj_edge_compress import ArrayBatches, PrunePlan, Teaching, TrainPlan, VariedImages, accuracy, distil, prune
from ipj_edge_compress.costs import size_of
from ipj_edge_compress.plans import EpochFigures

EXAMPLE = torch.zeros(2, 3, 32, 32)


def main() -> None:
    """Prune, fine-tune, convert, measure, print."""
    more = {"epochs": 150, "criterion": "l1", "rate": 3e-3, "mix": 0.5, "alpha": 1.0, "feature": 1.0, "aside": 0}
    chosen = arguments(__doc__ or "", minutes=40, models=Path(), rounds=1, **more)
    images, labels = cifar.load_images(chosen.data / "cifar10", "train")
    original, count = resnet(chosen.data, 20), len(images) - chosen.aside
    settings = "-".join(str(getattr(chosen, name)) for name in (*more, "rounds"))
    try:
        net = Kept(chosen.models).once(f"prune-{settings}", lambda: pruned(original, chosen, images[:count], labels))
    except OutOfTime:
        print(f"the time cap of {chosen.minutes:g} minutes ended the fine-tuning: no figures")
        return
    was, now = size_of(original, EXAMPLE), size_of(net, EXAMPLE)
    print(f"MACs {was.macs:,} → {now.macs:,}, parameters {was.parameters:,} → {now.parameters:,}")
    if chosen.aside:
        held = ArrayBatches(images[count:], labels[count:], size=250)
        print(
            f"on {chosen.aside} training images kept aside: {accuracy(original, held):.4f} → {accuracy(net, held):.4f}"
        )
        return
    test_images, test_labels = cifar.load_images(chosen.data / "cifar10", "test")
    test = ArrayBatches(test_images, test_labels, size=250)
    before, after = accuracy(original, test), accuracy(net, test)
    lost = 100 * (before - after)
    print(
        f"accuracy {before:.4f} → {after:.4f}, {lost:.2f} points lost (goal: ≤ 2): {'met' if lost <= 2 else 'missed'}"
    )
    _time(original, net, images)


def pruned(original: nn.Module, chosen: Namespace, images, labels) -> nn.Module:  # type: ignore[no-untyped-def]
    """Return the network at half of its MACs, taught by the original."""
    clock, net = Clock(chosen.minutes), deepcopy(original)
    labels = labels[: len(images)]
    varied = VariedImages(images, labels, size=128, shift=4, mirror=True, mix=chosen.mix, margin=BLACK)
    teaching = Teaching(
        temperature=4.0, alpha=chosen.alpha, feature_weight=chosen.feature,
        features={name: name for name in ("layer1", "layer2", "layer3")} if chosen.feature else {},
    )  # fmt: skip
    plan = TrainPlan(
        epochs=chosen.epochs // chosen.rounds, learning_rate=chosen.rate, schedule="one-cycle", precision="bf16"
    )

    def tell(epoch: int, figures: EpochFigures) -> None:
        clock.check()
        if epoch % 10 == 0:
            print(f"  epoch {epoch}: loss {figures.loss:.4f}, {figures.seconds:.1f} s", flush=True)

    def recover(net: nn.Module) -> None:
        distil(net, original, varied, plan, teaching=teaching, progress=tell)

    how = PrunePlan(target=0.5, criterion=chosen.criterion, round_to=4, rounds=chosen.rounds)
    prune(net, EXAMPLE, how, batches=ArrayBatches(images, labels, size=250), recover=recover)
    return net


def _time(original: nn.Module, net: nn.Module, images) -> None:  # type: ignore[no-untyped-def]
    times = compare_on_targets({"original": original, "pruned": net}, images)
    gains = {target: one["original"] / one["pruned"] for target, one in times.items()}
    for target, gain in gains.items():
        slow, fast_s = times[target]["original"], times[target]["pruned"]
        print(f"  {target:<16} {1e6 * slow:8.1f} µs → {1e6 * fast_s:8.1f} µs: {gain:.2f}×")
    fast = sum(gain >= 1.5 for gain in gains.values())
    print(f"1.5 times less time on {fast} of {len(gains)} targets (goal: two): {'met' if fast >= 2 else 'missed'}")


if __name__ == "__main__":
    main()
