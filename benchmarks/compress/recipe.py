"""The whole way: ResNet-20 pruned, given exits, trained for int8, with certified thresholds; joules against fp32.

    python -m benchmarks.compress.recipe [../shared/data] [--minutes 60] [--models DIR] [--target tflite-cpu]

Every step is measured on the same target, engine and probe, and stands in one table. Goals: at least 4 times fewer
joules an inference at no more than 1 point. The network pruned to half is that of ``compress_prune.py``. With
``--models`` networks and bundles are kept, and a second call only measures; ``--prepare 1`` only makes them.
``--drop layer1.2,layer2.2`` takes whole blocks out as well: faster and less accurate. Which blocks was chosen with
``--aside 500 --thin 4``, on training images.

Thresholds are tuned and certified on 500 test images and everything is judged on the other 500.
"""

from __future__ import annotations

import tempfile
from argparse import Namespace
from copy import deepcopy
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import numpy as np
import torch
from benchmarks.compress.prune import GROUPS, half_of_resnet20
from benchmarks.compress.shared import (
    BLACK,
    Clock,
    Kept,
    OutOfTime,
    arguments,
    bundle_of,
    cifar,
    resnet,
    trained_ranges,
)
from torch import nn

from ipj_edge.benchmark import bench
from ipj_edge.benchmark.run.runner import BenchOptions
from ipj_edge.errors import IpjEdgeError
from ipj_edge.exits import TuneRequest
from ipj_edge.tuning.tuning import TuningOptions, tune_exits
from ipj_edge.values import EnergyPerInference, Settings
from ipj_edge_compress import (
    ArrayBatches,
    Quantized,
    Teaching,
    TrainPlan,
    Variation,
    VariedImages,
    accuracy,
    distil,
    train_heads,
    train_quantized,
)
from ipj_edge_compress.distillation.distil import distillation_loss
from ipj_edge_compress.distillation.teachers import TeacherAnswers

HARM = 0.02
MIXED = Variation(shift=4, mirror=True, mix=0.5, patch=0.5, margin=BLACK)
SHIFTED = Variation(shift=4, mirror=True, margin=BLACK)
LEARNING = Teaching(temperature=4.0, alpha=1.0)
LIKE_THE_ORIGINAL = Teaching(temperature=4.0, alpha=1.0, features=GROUPS)


class Step(NamedTuple):
    """A row of the table: a network, the precision it is converted to, whether its exits are used."""

    name: str
    net: nn.Module
    quantized: Quantized | None = None
    exits: bool = False


class Figures(NamedTuple):
    """What was measured of a bundle."""

    accuracy: float
    joules: float
    median_s: float
    provenance: str


def main() -> None:
    """Compress step by step, measure each on the target, print one table."""
    chosen = arguments(
        __doc__ or "", minutes=60, target="tflite-cpu", models=Path(), prepare=0, epochs=15, qat=2, drop="",
        thin=60, aside=0,
    )  # fmt: skip
    clock, kept, began_s = Clock(chosen.minutes), Kept(chosen.models), monotonic()
    images, labels = cifar.load_images(chosen.data / "cifar10", "train")
    try:
        steps = _steps(chosen, kept, clock, images, labels)
    except OutOfTime:
        print(f"the time cap of {chosen.minutes:g} minutes ended the training: no figures")
        return
    if chosen.aside:
        held = ArrayBatches(images[-chosen.aside :], labels[-chosen.aside :], size=250)
        print(f"without {chosen.drop}: {accuracy(steps[2].net, held):.4f} on {chosen.aside} training images kept aside")
        return
    print(f"networks ready after {monotonic() - began_s:.0f} s")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if chosen.models == Path() else chosen.models
        bundles = [_bundle(step, chosen, images[:256], folder) for step in steps]
        if not chosen.prepare:
            _table(folder, chosen, steps, bundles)


def _steps(chosen: Namespace, kept: Kept, clock: Clock, images, labels) -> list[Step]:  # type: ignore[no-untyped-def]
    original = resnet(chosen.data, 20)
    pruned = half_of_resnet20(chosen.data, kept, clock)
    count = len(images) - chosen.aside
    images, labels = images[:count], labels[:count]
    varied = VariedImages(images, labels, SHIFTED, size=128)

    def thinner() -> nn.Module:
        """Take whole blocks out: each is a part of a sum, and operators cost time however few channels they have."""
        net = deepcopy(pruned)
        for block in chosen.drop.split(","):
            net.set_submodule(block, nn.Identity())
        mixed = VariedImages(images, labels, MIXED, size=64)
        plan = TrainPlan(epochs=chosen.thin, learning_rate=2e-3, schedule="one-cycle", precision="bf16")
        distil(net, original, mixed, plan, teaching=LIKE_THE_ORIGINAL, progress=clock)
        return net

    name = f"recipe-{chosen.drop}-{chosen.thin}-{chosen.aside}" if chosen.drop else "recipe"
    thin = kept.once(name, thinner) if chosen.drop else pruned
    if chosen.aside:
        return [Step("fp32 original", original), Step("pruned to half", pruned), Step("blocks out", thin)]

    def with_exits() -> nn.Module:
        torch.manual_seed(0)
        net = cifar.attach_exits(deepcopy(thin))
        train_heads(net, varied, TrainPlan(epochs=chosen.epochs, learning_rate=5e-3, precision="bf16"), progress=clock)
        return net

    def for_int8() -> Quantized:
        plan = TrainPlan(epochs=chosen.qat, learning_rate=1e-4)
        loss = distillation_loss(TeacherAnswers(original).fresh, LEARNING)
        inputs = list(torch.from_numpy(images[:256]).split(64))
        return train_quantized(net, varied, inputs, plan, loss=loss, progress=clock)

    net = kept.once(f"{name}-exits-{chosen.epochs}", with_exits)
    made = kept.once(f"{name}-int8-{chosen.epochs}-{chosen.qat}", for_int8)
    return [
        Step("fp32 original", original),
        Step("pruned to half", pruned),
        *([Step("blocks out", thin)] if chosen.drop else []),
        Step("+ exits, fp32", net, exits=True),
        Step("+ int8 (QAT)", made.module, made, exits=True),
    ]


def _bundle(step: Step, chosen: Namespace, calibration: np.ndarray, folder: Path) -> Path | None:
    target = chosen.target
    drop = "".join(filter(str.isdigit, chosen.drop))
    precision, name = (
        "int8" if step.quantized else "fp32",
        f"{''.join(filter(str.isalnum, step.name))}{drop}-{chosen.epochs}-{chosen.qat}",
    )
    ready = folder / f"{name}.{target}.{precision}.ipj"
    if ready.exists():
        return ready
    ranges = step.quantized and trained_ranges(step.quantized, calibration)
    bundle, _, why = bundle_of(step.net, target, precision, calibration, folder, name, ranges=ranges)
    if bundle is None:
        print(f"{step.name}: not converted: {why}")
    return bundle


def _table(folder: Path, chosen: Namespace, steps: list[Step], bundles: list[Path | None]) -> None:
    images, labels = cifar.load_images(chosen.data / "cifar10", "test")
    np.savez(folder / "tune.npz", x=images[::2], labels=labels[::2])
    np.savez(folder / "test.npz", x=images[1::2], labels=labels[1::2])
    first: Figures | None = None
    last: Figures | None = None
    for step, bundle in zip(steps, bundles, strict=True):
        if bundle is not None:
            note = _tuned(bundle, folder) if step.exits else ""
            last = _figures(bundle, folder)
            first = first or last
            _row(step.name, last, first, note)
    assert first is not None
    assert last is not None
    lost, fewer = 100 * (first.accuracy - last.accuracy), first.joules / last.joules
    met = "met" if lost <= 1 and fewer >= 4 else "missed"
    print(f"{chosen.target}: {fewer:.2f}× fewer joules ({last.provenance}) at {lost:.1f} points (≥ 4×, ≤ 1): {met}")


def _tuned(bundle: Path, folder: Path) -> str:
    options = TuningOptions(
        data=str(folder / "tune.npz"), request=TuneRequest(epsilon=HARM, delta=0.05), objective="seconds",
        settings=Settings(threads=1),
    )  # fmt: skip
    try:
        tuned = tune_exits(bundle, options).tuned
    except IpjEdgeError as error:
        return f"no early exit: {error}"
    certificate = tuned.certificate
    if certificate.method == "none":
        return f"no early exit: {certificate.reason}"
    return f"harm ≤ {100 * HARM:g} % at 95 %"


def _figures(bundle: Path, folder: Path) -> Figures:
    options = BenchOptions(data=str(folder / "test.npz"), settings=Settings(threads=1), windows=5, window_s=1.0)
    entry = bench([bundle], options).results[0]
    accuracy, energy = entry.accuracy, entry.joules_per_inference
    if accuracy is None or energy.value is None:
        raise RuntimeError(f"{bundle.name}: {entry.accuracy_reason} {energy.reason}")
    _say_interval(bundle.name, energy)
    return Figures(accuracy.value, energy.value, entry.latency_s.p50, energy.provenance)


def _say_interval(name: str, energy: EnergyPerInference) -> None:
    if energy.low is not None and energy.high is not None:
        print(f"  {name}: {1e6 * energy.low:.1f} to {1e6 * energy.high:.1f} µJ")


def _row(name: str, now: Figures, first: Figures, note: str) -> None:
    print(
        f"{name:<16} accuracy {now.accuracy:.4f} ({100 * (now.accuracy - first.accuracy):+.1f} points), "
        f"{1e6 * now.joules:8.1f} µJ ({first.joules / now.joules:.2f}× fewer), {1e6 * now.median_s:7.1f} µs "
        f"({100 * (now.median_s / first.median_s - 1):+.0f} %) {note}",
        flush=True,
    )


if __name__ == "__main__":
    main()
