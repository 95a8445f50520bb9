"""Half the MACs of ResNet-20: what accuracy that costs after fine-tuning on 4,000 images, and what time it saves.

    python benchmarks/compress_prune.py [../shared/data] [--minutes 20] [--epochs 8] [--criterion taylor]

The original is the teacher. Goals: at most 2 points, and at least 1.5 times less measured time on two targets.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from compress_bench import Clock, OutOfTime, arguments, cifar_data, compare_on_targets, resnet
from torch import nn

from ipj_edge_compress import PrunePlan, Teaching, TrainPlan, accuracy, distil, prune
from ipj_edge_compress.teachers import TeacherAnswers


def main() -> None:
    """Prune, fine-tune, convert, measure, print."""
    chosen = arguments(__doc__ or "", minutes=20, epochs=8, criterion="taylor")
    clock = Clock(chosen.minutes)
    batches, test, images = cifar_data(chosen.data, mirrored=True)
    original = resnet(chosen.data, 20)
    before = accuracy(original, test)
    answers = TeacherAnswers(deepcopy(original))

    def recover(net: nn.Module) -> None:
        print(f"pruned, not yet fine-tuned: {accuracy(net, test):.4f}", flush=True)
        try:
            plan = TrainPlan(epochs=chosen.epochs, learning_rate=2e-3)
            distil(net, answers, batches, plan, teaching=Teaching(temperature=4.0, alpha=0.9), progress=clock)
        except OutOfTime:
            print(f"the time cap of {chosen.minutes:g} minutes ended the fine-tuning")

    net = deepcopy(original)
    plan = PrunePlan(target=0.5, criterion=chosen.criterion, round_to=4)
    few, _, _ = cifar_data(chosen.data)
    report = prune(net, torch.zeros(2, 3, 32, 32), plan, batches=few, recover=recover)
    after = accuracy(net, test)
    lost = 100 * (before - after)
    print(
        f"MACs {report.before.macs:,} → {report.after.macs:,}, parameters {report.before.parameters:,} → "
        f"{report.after.parameters:,}; {len(report.left_alone)} layers cannot be pruned (option A pads channels)"
    )
    print(
        f"accuracy {before:.4f} → {after:.4f}, {lost:+.2f} points lost (goal: ≤ 2): {'met' if lost <= 2 else 'missed'}"
    )
    times = compare_on_targets({"original": original, "pruned": net}, images)
    gains = {target: one["original"] / one["pruned"] for target, one in times.items()}
    for target, gain in gains.items():
        slow, fast_s = times[target]["original"], times[target]["pruned"]
        print(f"  {target:<16} {1e6 * slow:8.1f} µs → {1e6 * fast_s:8.1f} µs: {gain:.2f}×")
    fast = sum(gain >= 1.5 for gain in gains.values())
    print(f"1.5 times less time on {fast} of {len(gains)} targets (goal: two): {'met' if fast >= 2 else 'missed'}")


if __name__ == "__main__":
    main()
