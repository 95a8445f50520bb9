"""Does a teacher help? ResNet-56 teaches ResNet-8 (a tenth of its MACs) on 4,000 CIFAR-10 images, three seeds.

    python benchmarks/compress_distil.py [../shared/data] [--minutes 25] [--epochs 12] [--seeds 3]

The same student, data, epochs and seeds with labels alone and with the teacher. The goal is one point more; on little
data others saw none, and what is found is printed.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import torch
from compress_bench import Clock, OutOfTime, arguments, cifar, cifar_data, resnet

from ipj_edge_compress import Teaching, TrainPlan, accuracy, distil, train
from ipj_edge_compress.costs import size_of
from ipj_edge_compress.teachers import TeacherAnswers


def main() -> None:
    """Train both ways with every seed and print mean and spread."""
    chosen = arguments(__doc__ or "", minutes=25, epochs=12, seeds=3)
    clock = Clock(chosen.minutes)
    batches, test, _ = cifar_data(chosen.data)
    example = torch.zeros(2, 3, 32, 32)
    teacher = resnet(chosen.data, 56)
    share = size_of(cifar.resnet8(), example).macs / size_of(teacher, example).macs
    print(f"teacher ResNet-56 {accuracy(teacher, test):.4f}; student ResNet-8 with {100 * share:.1f} % of its MACs")
    found: dict[str, list[float]] = {"labels alone": [], "with teacher": []}
    answers = TeacherAnswers(teacher, Path(tempfile.gettempdir()) / "ipj-edge-resnet56-answers.npz")
    answers.fill(batches)
    try:
        for seed in range(chosen.seeds):
            for how, scores in found.items():
                torch.manual_seed(seed)
                student = cifar.resnet8()
                plan = TrainPlan(epochs=chosen.epochs, learning_rate=4e-3, schedule="one-cycle", seed=seed)
                if how == "labels alone":
                    train(student, batches, plan, progress=clock)
                else:
                    teaching = Teaching(temperature=4.0, alpha=0.9)
                    distil(student, answers, batches, plan, teaching=teaching, progress=clock)
                scores.append(accuracy(student, test))
                print(f"  seed {seed}, {how}: {scores[-1]:.4f}", flush=True)
    except OutOfTime:
        print(f"  the time cap of {chosen.minutes:g} minutes ended it here")
    _report(found)


def _report(found: dict[str, list[float]]) -> None:
    both = min(map(len, found.values()))
    if not both:
        print("no seed was finished both ways: give it more --minutes")
        return
    for how, scores in found.items():
        spread = statistics.stdev(scores[:both]) if both > 1 else float("nan")
        print(f"{how}: {statistics.mean(scores[:both]):.4f} ± {spread:.4f} ({both} seeds)")
    gain = 100 * (statistics.mean(found["with teacher"][:both]) - statistics.mean(found["labels alone"][:both]))
    print(f"the teacher is worth {gain:+.2f} points (goal: +1): {'met' if gain >= 1 else 'missed'}")


if __name__ == "__main__":
    main()
