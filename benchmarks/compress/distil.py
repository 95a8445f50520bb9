"""Does a teacher help? ResNet-56 teaches ResNet-8 (a tenth of its MACs) on 4,000 CIFAR-10 images, three seeds.

    python -m benchmarks.compress.distil [../shared/data] [--minutes 90] [--epochs 10] [--seeds 3] [--models DIR]

The same student, data, epochs and seeds with labels alone and with the teacher. Every image is there in four variants
(shifted, mirrored), so that the teacher answers each once. The goal is one point more; on little data others saw none,
and what is found is printed.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import numpy as np
import torch
from benchmarks.compress.shared import BLACK, Clock, Kept, OutOfTime, arguments, cifar, resnet
from torch import nn

from ipj_edge_compress import ArrayBatches, Teaching, TrainPlan, Variation, VariedImages, accuracy, distil, train
from ipj_edge_compress.cost.size import size_of
from ipj_edge_compress.distillation.teachers import TeacherAnswers

VARIANTS = 4
SHIFTED = Variation(shift=4, mirror=True, margin=BLACK)
TEACHING = Teaching(temperature=4.0, alpha=0.9)


def main() -> None:
    """Train both ways with every seed and print mean and spread."""
    chosen = arguments(__doc__ or "", minutes=90, epochs=10, seeds=3, models=Path())
    clock, kept = Clock(chosen.minutes), Kept(chosen.models)
    test = ArrayBatches(*cifar.load_images(chosen.data / "cifar10", "test"), size=250)
    example = torch.zeros(2, 3, 32, 32)
    teacher = resnet(chosen.data, 56)
    share = size_of(cifar.resnet8(), example).macs / size_of(teacher, example).macs
    print(f"teacher ResNet-56 {accuracy(teacher, test):.4f}; student ResNet-8 with {100 * share:.1f} % of its MACs")
    batches = fixed_variants(chosen.data)
    answers = TeacherAnswers(teacher, kept.file("resnet56-answers.npz"))

    def student(seed: int, taught: bool) -> nn.Module:
        torch.manual_seed(seed)
        net = cifar.resnet8()
        plan = TrainPlan(epochs=chosen.epochs, learning_rate=8e-3, schedule="one-cycle", precision="bf16", seed=seed)
        if taught:
            distil(net, answers, batches, plan, teaching=TEACHING, progress=clock)
        else:
            train(net, batches, plan, progress=clock)
        return net

    found: dict[str, list[float]] = {"labels alone": [], "with teacher": []}
    try:
        for seed in range(chosen.seeds):
            for how, scores in found.items():
                taught = how == "with teacher"
                name = f"distil-{chosen.epochs}-{seed}-{taught}"
                net = kept.once(name, lambda seed=seed, taught=taught: student(seed, taught))
                scores.append(accuracy(net, test))
                print(f"  seed {seed}, {how}: {scores[-1]:.4f}", flush=True)
    except OutOfTime:
        print(f"  the time cap of {chosen.minutes:g} minutes ended it here")
    _report(found)


def fixed_variants(data: Path) -> ArrayBatches:
    """Return batches of every training image in four variants, always the same ones."""
    images, labels = cifar.load_images(data / "cifar10", "train")
    varied = VariedImages(images, labels, SHIFTED, size=len(images), seed=1)
    parts = []
    for varied.epoch in range(VARIANTS):
        parts += list(varied)
    pixels, wanted = (np.concatenate([part[place].numpy() for part in parts]) for place in (0, 1))
    return ArrayBatches(pixels, wanted, size=128, seed=0)


def _report(found: dict[str, list[float]]) -> None:
    both = min(map(len, found.values()))
    if not both:
        print("no seed was finished both ways: give it more --minutes")
        return
    for how, scores in found.items():
        spread = f"± {statistics.stdev(scores[:both]):.4f} ({both} seeds)" if both > 1 else "(one seed: no spread)"
        print(f"{how}: {statistics.mean(scores[:both]):.4f} {spread}")
    gain = 100 * (statistics.mean(found["with teacher"][:both]) - statistics.mean(found["labels alone"][:both]))
    verdict = "one seed does not tell" if both == 1 else "met" if gain >= 1 else "missed"
    print(f"the teacher is worth {gain:+.2f} points (goal: +1): {verdict}")


if __name__ == "__main__":
    main()
