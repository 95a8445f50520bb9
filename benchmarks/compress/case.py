"""The case study: accuracy down by at most 0.5 points, training time and latency down by 40 %.

    python -m benchmarks.compress.case [../shared/data] [--minutes 30] [--epochs 6] [--models DIR] [--prepare 1]

The plain way: ResNet-20 from scratch on 4,000 CIFAR-10 images, in float32, converted to fp32. The cheap way: ResNet-14
on the same images for as many epochs, in bfloat16, then for half a pass as int8; with ``--taught 1`` the public
ResNet-20 teaches it (its own training is not counted, its answers are). Training time and joules are measured on passes
over 500 images, the two ways taking turns, and scaled to the whole training: a training of minutes would measure the
machine's other work too.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from benchmarks.compress.shared import (
    BLACK,
    Clock,
    Kept,
    OutOfTime,
    arguments,
    bundle_of,
    cifar,
    resnet,
    seconds_on,
    trained_ranges,
)
from torch import nn

import ipj_edge
from ipj_edge.energy import Meter
from ipj_edge_compress import (
    Quantized,
    Teaching,
    TrainPlan,
    TrainReport,
    Variation,
    VariedImages,
    distil,
    train,
    train_quantized,
)
from ipj_edge_compress.distillation.distil import distillation_loss
from ipj_edge_compress.distillation.teachers import TeacherAnswers

SHIFTED = Variation(shift=4, mirror=True, margin=BLACK)
TEACHING = Teaching(temperature=4.0, alpha=0.9)
TURNS, FEW = 3, 500


def main() -> None:
    """Train both ways, time both ways, convert, measure, print."""
    chosen = arguments(__doc__ or "", minutes=30, epochs=6, target="tflite-cpu", models=Path(), prepare=0, taught=0)
    clock, kept = Clock(chosen.minutes), Kept(chosen.models)
    images, labels = cifar.load_images(chosen.data / "cifar10", "train")
    batches = VariedImages(images, labels, SHIFTED, size=64)
    half = VariedImages(images[::2], labels[::2], SHIFTED, size=64)
    teacher = resnet(chosen.data, 20) if chosen.taught else None
    way = "cheap" if chosen.taught else "alone"
    calibration, epochs = images[:256], chosen.epochs
    try:
        plain = kept.once(f"case-plain-{epochs}", lambda: _plain(batches, epochs, clock)[0])
        small = kept.once(f"case-{way}-{epochs}", lambda: _small(batches, epochs, clock, teacher)[0])
        made = kept.once(f"case-int8-half-{way}-{epochs}", lambda: _for_int8(half, clock, teacher, small, calibration))
    except OutOfTime:
        print(f"the time cap of {chosen.minutes:g} minutes ended the training: no figures")
        return
    if chosen.prepare:
        return
    few = VariedImages(images[:FEW], labels[:FEW], SHIFTED, size=64)
    parts: dict[str, Callable[[], TrainReport]] = {
        "plain": lambda: _plain(few, 1, clock)[1],
        "small": lambda: _small(few, 1, clock, teacher)[1],
        "int8": lambda: _for_int8(few, clock, teacher, small, calibration).report,
    }
    whole = len(images) / FEW
    costs = _costs(parts, {"plain": whole * epochs, "small": whole * epochs, "int8": whole / 2})
    _report(chosen, plain, made, calibration, costs)


def _plain(batches: VariedImages, epochs: int, clock: Clock) -> tuple[nn.Module, TrainReport]:
    torch.manual_seed(0)
    net = cifar.resnet20()
    plan = TrainPlan(epochs=epochs, learning_rate=4e-3, schedule="one-cycle")
    return net, train(net, batches, plan, progress=clock)


def _small(
    batches: VariedImages, epochs: int, clock: Clock, teacher: nn.Module | None
) -> tuple[nn.Module, TrainReport]:
    torch.manual_seed(0)
    net = cifar.resnet14()
    plan = TrainPlan(epochs=epochs, learning_rate=4e-3, schedule="one-cycle", precision="bf16")
    if teacher is None:
        return net, train(net, batches, plan, progress=clock)
    return net, distil(net, teacher, batches, plan, teaching=TEACHING, progress=clock)


def _for_int8(
    batches: VariedImages, clock: Clock, teacher: nn.Module | None, net: nn.Module, calibration: np.ndarray
) -> Quantized:
    loss = None if teacher is None else distillation_loss(TeacherAnswers(teacher).fresh, TEACHING)
    inputs = list(torch.from_numpy(calibration).split(64))
    return train_quantized(net, batches, inputs, TrainPlan(epochs=1, learning_rate=1e-4), loss=loss, progress=clock)


class Cost(NamedTuple):
    """Seconds and joules of a training."""

    seconds: float
    joules: float


def _costs(parts: dict[str, Callable[[], TrainReport]], passes: dict[str, float]) -> dict[str, Cost]:
    """Return what whole trainings cost, from short ones that take turns: what comes before and after, and the passes.

    What a pass takes grows with the passes; tracing and calibration are done once. Power is taken to be the same.
    """
    seen: dict[str, list[Cost]] = {name: [] for name in parts}
    with Meter(["auto"]) as meter:
        for _ in range(TURNS):
            for name, part in parts.items():
                with meter.window(name) as window:
                    report = part()
                took, joules = window.reading.seconds, window.reading.joules
                one = sum(epoch.seconds for epoch in report.epochs)
                seconds = took + (passes[name] - 1) * one
                seen[name].append(Cost(seconds, float("nan") if joules is None else joules * seconds / took))
        facts = meter.facts[0]
    print(f"probe {facts.name} ({facts.provenance})" if facts else "no probe")
    whole = {
        name: Cost(*(statistics.median(values) for values in zip(*each, strict=True))) for name, each in seen.items()
    }
    print(", ".join(f"{name} {cost.seconds:.0f} s" for name, cost in whole.items()))
    cheap = Cost(*(a + b for a, b in zip(whole["small"], whole["int8"], strict=True)))
    return {"plain": whole["plain"], "cheap": cheap}


def _report(chosen: Any, plain: nn.Module, made: Quantized, calibration: np.ndarray, costs: dict[str, Cost]) -> None:
    images, labels = cifar.load_images(chosen.data / "cifar10", "test")
    ranges = trained_ranges(made, calibration)
    reached, bundles = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder)
        for name, outcome in (
            ("plain", bundle_of(plain, chosen.target, "fp32", calibration, into, "plain")),
            ("cheap", bundle_of(made.module, chosen.target, "int8", calibration, into, "cheap", ranges=ranges)),
        ):
            if outcome[0] is None:
                print(f"{name}: not converted: {outcome[2]}")
                return
            bundles[name] = outcome[0]
            with ipj_edge.load(bundles[name], threads=1) as model:
                answers = next(iter(model.run(images).outputs.values()))
            reached[name] = float((answers.argmax(1) == labels).mean())
        latency = seconds_on(chosen.target, bundles, images)
    for name, cost in costs.items():
        print(
            f"{name}: accuracy {reached[name]:.4f}, training {cost.seconds:.0f} s and {cost.joules:.0f} J, "
            f"latency {1e6 * latency[name]:.0f} µs on {chosen.target}"
        )
    drop = 100 * (reached["plain"] - reached["cheap"])
    shorter = 100 * (1 - costs["cheap"].seconds / costs["plain"].seconds)
    faster = 100 * (1 - latency["cheap"] / latency["plain"])
    met = "met" if drop <= 0.5 and shorter >= 40 and faster >= 40 else "missed"
    print(f"accuracy {-drop:+.1f} points, training time −{shorter:.0f} %, latency −{faster:.0f} %: {met}")


if __name__ == "__main__":
    main()
