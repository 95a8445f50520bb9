"""The case study: accuracy down by at most 0.5 points, training time and latency down by 40 %.

    python benchmarks/compress_case.py [../shared/data] [--minutes 30] [--epochs 6] [--models DIR] [--prepare 1]

The plain way: ResNet-20 from scratch on 4,000 CIFAR-10 images, in float32, converted to fp32. The cheap way: ResNet-14
on the same images for as many epochs, in bfloat16, taught by the public ResNet-20 (whose own training is not counted;
its answers are), converted to int8. Training time and joules are measured on passes over 1,000 images, the two ways
taking turns, and scaled to the whole training: a training of minutes would measure the machine's other work too.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from compress_bench import BLACK, Clock, Kept, OutOfTime, arguments, bundle_of, cifar, resnet, seconds_on
from torch import nn

import ipj_edge
from ipj_edge.energy import Meter
from ipj_edge_compress import Teaching, TrainPlan, Variation, VariedImages, distil, train

SHIFTED = Variation(shift=4, mirror=True, margin=BLACK)
TURNS, FEW = 5, 1000


def main() -> None:
    """Train both ways, time both ways, convert, measure, print."""
    chosen = arguments(__doc__ or "", minutes=30, epochs=6, target="tflite-cpu", models=Path(), prepare=0)
    clock, kept = Clock(chosen.minutes), Kept(chosen.models)
    images, labels = cifar.load_images(chosen.data / "cifar10", "train")
    ways: dict[str, Callable[..., nn.Module]] = {"plain": _plain, "cheap": _Cheap(resnet(chosen.data, 20))}
    try:
        nets = {
            name: kept.once(
                f"case-{name}-{chosen.epochs}",
                lambda way=way: way(VariedImages(images, labels, SHIFTED, size=64), chosen.epochs, progress=clock),
            )
            for name, way in ways.items()
        }
    except OutOfTime:
        print(f"the time cap of {chosen.minutes:g} minutes ended the training: no figures")
        return
    if chosen.prepare:
        return
    few = VariedImages(images[:FEW], labels[:FEW], SHIFTED, size=64)
    seconds, joules = _costs(ways, few, chosen.epochs * len(images) / FEW)
    _report(chosen, nets, seconds, joules)


def _plain(batches: VariedImages, epochs: int, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    net = cifar.resnet20()
    train(net, batches, TrainPlan(epochs=epochs, learning_rate=4e-3, schedule="one-cycle"), **options)
    return net


class _Cheap:
    def __init__(self, teacher: nn.Module) -> None:
        self._teacher = teacher

    def __call__(self, batches: VariedImages, epochs: int, **options: Any) -> nn.Module:
        torch.manual_seed(0)
        net = cifar.resnet14()
        plan = TrainPlan(epochs=epochs, learning_rate=4e-3, schedule="one-cycle", precision="bf16")
        distil(net, self._teacher, batches, plan, teaching=Teaching(temperature=4.0, alpha=0.9), **options)
        return net


def _costs(
    ways: dict[str, Callable[..., nn.Module]], few: VariedImages, passes: float
) -> tuple[dict[str, float], dict[str, float]]:
    """Return seconds and joules of a whole training each way: medians over turns of one short pass."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    joules: dict[str, list[float]] = {name: [] for name in ways}
    with Meter(["auto"]) as meter:
        for _ in range(TURNS):
            for name, way in ways.items():
                with meter.window(name) as window:
                    way(few, 1)
                seconds[name].append(window.reading.seconds)
                joules[name].append(window.reading.joules or float("nan"))
        facts = meter.facts[0]
    print(f"probe {facts.name if facts else 'none'}, {facts.provenance if facts else ''} joules")
    total = [{name: passes * statistics.median(one) for name, one in each.items()} for each in (seconds, joules)]
    return total[0], total[1]


def _report(chosen: Any, nets: dict[str, nn.Module], seconds: dict[str, float], joules: dict[str, float]) -> None:
    images, labels = cifar.load_images(chosen.data / "cifar10", "test")
    calibration = cifar.load_images(chosen.data / "cifar10", "train")[0][:256]
    reached, bundles = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for name, precision in (("plain", "fp32"), ("cheap", "int8")):
            bundle, _, why = bundle_of(nets[name], chosen.target, precision, calibration, Path(folder), name)
            if bundle is None:
                print(f"{name}: not converted: {why}")
                return
            bundles[name] = bundle
            with ipj_edge.load(bundle, threads=1) as model:
                answers = next(iter(model.run(images).outputs.values()))
            reached[name] = float((answers.argmax(1) == labels).mean())
        latency = seconds_on(chosen.target, bundles, images)
    for name in bundles:
        print(
            f"{name}: accuracy {reached[name]:.4f}, training {seconds[name]:.0f} s and {joules[name]:.0f} J, "
            f"latency {1e6 * latency[name]:.0f} µs on {chosen.target}"
        )
    drop = 100 * (reached["plain"] - reached["cheap"])
    shorter, faster = (100 * (1 - each["cheap"] / each["plain"]) for each in (seconds, latency))
    met = "met" if drop <= 0.5 and shorter >= 40 and faster >= 40 else "missed"
    print(f"accuracy {-drop:+.1f} points, training time −{shorter:.0f} %, latency −{faster:.0f} %: {met}")


if __name__ == "__main__":
    main()
