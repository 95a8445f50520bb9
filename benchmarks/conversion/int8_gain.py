"""int8 against fp32: CPU time of one inference per engine, with the share of operators that stayed in float.

ResNet-20 for CIFAR-10 (public weights, 16 to 64 channels), a network of 64 to 256 channels and a depthwise-separable
one at 64×64, both of random weights, converted by ``ipj_edge.conversion`` for every engine and timed in one run each,
one thread, in an order that changes every round, so that a busy machine slows both alike. Quantization is calibrated
on smooth random images: this measures speed, not accuracy. The goal is 2.7 times on every engine
where the CPU has VNNI.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from benchmarks.shared import public_data

import ipj_edge
from ipj_edge import host
from ipj_edge.conversion import ConvertRequest, Outcome, convert
from ipj_edge.runtime.model import Model
from ipj_edge.values import TensorSpec

TARGETS = ("onnxruntime-cpu", "openvino-cpu", "tflite-cpu")
GOAL = 2.7
ROUNDS = 60
CALIBRATION_SAMPLES = 64

RESNET = "models/cifar10_resnet20/resnet20_cifar10.pt2"
# A source file of a network that follows from `layers`. He et al. 2015: signals keep their size through the layers.
NETWORK = """
import torch
from torch import nn


def build():
    torch.manual_seed(0)
    layers = []
{layers}
    model = nn.Sequential(*layers)
    for layer in model.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return model
"""
WIDE = """
    for taken, made, stride in ((3, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1)):
        layers += [nn.Conv2d(taken, made, 3, stride, 1), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10)]
"""
DEPTHWISE = """
    layers += [nn.Conv2d(3, 32, 3, 1, 1), nn.ReLU()]
    for taken, made, stride in ((32, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 128, 1)):
        layers += [nn.Conv2d(taken, taken, 3, stride, 1, groups=taken), nn.ReLU()]
        layers += [nn.Conv2d(taken, made, 1), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128 * 16, 10)]
"""


def images(count: int, side: int) -> np.ndarray:
    """Return smooth random images, float32 of shape (count, 3, side, side)."""
    rng = np.random.default_rng(0)
    coarse = rng.standard_normal((count, 3, side // 4, side // 4)).astype(np.float32)
    return coarse.repeat(4, axis=2).repeat(4, axis=3)


def converted(source: str, name: str, side: int, folder: Path) -> tuple[Outcome, ...]:
    """Convert a source for every engine at fp32 and int8."""
    # A .pt2 program names its input itself, a factory's is named here; both have one.
    given = () if source.endswith(".pt2") else (TensorSpec(name="image", shape=(1, 3, side, side), dtype="float32"),)
    calibration = folder / f"{name}.npz"
    np.savez(calibration, x=images(CALIBRATION_SAMPLES, side))
    return convert(
        ConvertRequest(
            source=source, targets=TARGETS, into=folder, precisions=("fp32", "int8"), name=name, inputs=given,
            calibration=str(calibration),
        )
    )  # fmt: skip


def cpu_s(models: Sequence[Model], feed: np.ndarray) -> list[float]:
    """Return the median CPU seconds of one inference of every model, taken in a new random order each round."""
    for model in models:
        for _ in range(10):
            model.run(feed)
    rng, samples = random.Random(0), [[] for _ in models]
    order = list(range(len(models)))
    for _ in range(ROUNDS):
        rng.shuffle(order)
        for index in order:
            start = time.process_time_ns()
            models[index].run(feed)
            samples[index].append(time.process_time_ns() - start)
    return [statistics.median(each) / 1e9 for each in samples]


def report(outcomes: Sequence[Outcome], side: int) -> None:
    """Print one line an engine."""
    feed = images(1, side)
    for target in TARGETS:
        pair = {each.precision: each for each in outcomes if each.target == target}
        missing = [each for each in pair.values() if each.bundle is None]
        if missing:
            print(f"  {target:16s} {missing[0].precision}: {missing[0].error}")
            continue
        bundles = [pair[precision].bundle for precision in ("fp32", "int8")]
        models = [ipj_edge.load(bundle.path, threads=1) for bundle in bundles]
        wide, small = cpu_s(models, feed)
        for model in models:
            model.close()
        operators = bundles[1].manifest.stages[0].operators
        verdict = "" if wide / small >= GOAL else "  below the goal" if wide > small else "  SLOWER than fp32"
        print(
            f"  {target:16s} fp32 {1e3 * wide:7.3f} ms   int8 {1e3 * small:7.3f} ms   {wide / small:4.2f} times   "
            f"{len(operators.float_operators)} of {operators.total} operators in float{verdict}"
        )


def main() -> int:
    """Convert, time and print."""
    data = public_data.find()
    print(f"VNNI: {'yes' if host.has_vnni() else 'no: the goal does not apply'}; goal {GOAL} times")
    with TemporaryDirectory(prefix="ipj-edge-") as scratch:
        into = Path(scratch)
        if data is None:
            print("ResNet-20: skipped, " + public_data.MISSING)
        else:
            print("ResNet-20, 3×32×32")
            report(converted(str(data / RESNET), "resnet20", 32, into), 32)
        for name, layers, side in (("wide", WIDE, 32), ("depthwise", DEPTHWISE, 64)):
            (into / f"{name}.py").write_text(NETWORK.format(layers=layers.strip("\n")))
            print(f"{name} network, 3×{side}×{side}")
            report(converted(f"{into / f'{name}.py'}:build", name, side, into), side)
    return 0


if __name__ == "__main__":
    sys.exit(main())
