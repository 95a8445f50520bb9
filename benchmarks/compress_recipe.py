"""The whole way: ResNet-20 pruned, given exits, trained for int8, with certified thresholds; joules against fp32.

    python benchmarks/compress_recipe.py [../shared/data] [--minutes 40] [--target onnxruntime-cpu]

Every step is measured on the same target, engine and probe, and stands in one table. Goals: at least 4 times fewer
joules an inference at no more than 1 point; and the case study: accuracy down by at most 0.5 points, latency −40 %,
training time −40 % (here: of the epochs a training from scratch would have taken; printed as seconds).

Thresholds are tuned and certified on 500 test images and everything is judged on the other 500.
"""

from __future__ import annotations

import tempfile
from copy import deepcopy
from pathlib import Path
from time import monotonic

import numpy as np
import torch
from compress_bench import Clock, arguments, bundle_of, cifar, cifar_data, resnet
from torch import nn

from ipj_edge.benchmark import bench
from ipj_edge.benchmark.runner import BenchOptions
from ipj_edge.data import Samples, digest
from ipj_edge.errors import IpjEdgeError
from ipj_edge.exits import TuneRequest
from ipj_edge.tuning import TuningOptions, tune_exits
from ipj_edge.values import Settings, TrainedRanges
from ipj_edge_compress import (
    PrunePlan,
    Quantized,
    Teaching,
    TrainPlan,
    distil,
    prune,
    train_heads,
    train_quantized,
)
from ipj_edge_compress.teachers import TeacherAnswers


def main() -> None:
    """Compress step by step, measure each on the target, print one table."""
    chosen = arguments(__doc__ or "", minutes=40, target="onnxruntime-cpu", epochs=6)
    clock, began_s = Clock(chosen.minutes), monotonic()
    batches, _, images = cifar_data(chosen.data)
    calibration = images[:256]
    steps: list[tuple[str, nn.Module, Quantized | None]] = [("fp32 original", resnet(chosen.data, 20), None)]
    teacher = TeacherAnswers(deepcopy(steps[0][1]))

    def recover(net: nn.Module) -> None:
        plan = TrainPlan(epochs=chosen.epochs, learning_rate=2e-3)
        distil(net, teacher, batches, plan, teaching=Teaching(), progress=clock)

    pruned = deepcopy(steps[0][1])
    plan = PrunePlan(target=0.6, criterion="taylor", round_to=4)
    prune(pruned, torch.zeros(2, 3, 32, 32), plan, batches=batches, recover=recover)
    steps.append(("pruned to 60 % MACs", pruned, None))
    net = cifar.attach_exits(deepcopy(pruned))
    train_heads(net, batches, TrainPlan(epochs=chosen.epochs, learning_rate=5e-3), progress=clock)
    inputs = list(torch.from_numpy(calibration).split(64))
    made = train_quantized(net, batches, inputs, TrainPlan(epochs=1, learning_rate=5e-5), progress=clock)
    steps += [("+ exits, fp32", net, None), ("+ int8 (QAT)", made.module, made)]
    trained_s = monotonic() - began_s
    with tempfile.TemporaryDirectory() as folder:
        _table(Path(folder), chosen, steps, calibration)
    print(f"compression took {trained_s:.0f} s, measuring not counted")


def _table(folder: Path, chosen, steps, calibration: np.ndarray) -> None:  # type: ignore[no-untyped-def]
    images, labels = cifar.load_images(chosen.data / "cifar10", "test")
    np.savez(folder / "tune.npz", x=images[::2], labels=labels[::2])
    np.savez(folder / "test.npz", x=images[1::2], labels=labels[1::2])
    ranges_sha = digest(Samples(arrays={"x": calibration}, labels=None, count=len(calibration)))
    first: tuple[float, float, float] | None = None
    for index, (name, module, made) in enumerate(steps):
        ranges = made and TrainedRanges(calibration_sha256=ranges_sha, activations=made.ranges)
        bundle, _, why = bundle_of(
            module,
            chosen.target,
            "int8" if made else "fp32",
            calibration,
            folder,
            f"step{index}",
            ranges=ranges,
        )
        if bundle is None:
            print(f"{name:<22} not converted: {why}")
            continue
        note = _tuned(bundle, folder) if index >= 2 else ""
        figures = _figures(bundle, folder)
        first = first or figures
        _row(name, figures, first, note)
    print("goal: ≥ 4× fewer joules at ≤ 1 point; case study: ≤ 0.5 points, latency −40 %")


def _tuned(bundle: Path, folder: Path) -> str:
    options = TuningOptions(
        data=str(folder / "tune.npz"), request=TuneRequest(epsilon=0.01, delta=0.05), objective="seconds",
        settings=Settings(threads=1),
    )  # fmt: skip
    try:
        tune_exits(bundle, options)
    except IpjEdgeError as error:
        return f"no early exit: {error}"
    return "exits certified at harm ≤ 1 %, 95 %"


def _figures(bundle: Path, folder: Path) -> tuple[float, float, float]:
    """Return accuracy, joules and median seconds of one inference."""
    options = BenchOptions(data=str(folder / "test.npz"), settings=Settings(threads=1), windows=5, window_s=1.0)
    entry = bench([bundle], options).results[0]
    accuracy, joules = entry.accuracy, entry.joules_per_inference.value
    if accuracy is None or joules is None:
        raise RuntimeError(f"{bundle.name}: {entry.accuracy_reason} {entry.joules_per_inference.reason}")
    return accuracy.value, joules, entry.latency_s.mean


def _row(name: str, now: tuple[float, float, float], first: tuple[float, float, float], note: str) -> None:
    print(
        f"{name:<22} accuracy {now[0]:.4f} ({100 * (now[0] - first[0]):+.1f} points), {1e6 * now[1]:8.1f} µJ "
        f"({first[1] / now[1]:.2f}× fewer), {1e6 * now[2]:7.1f} µs ({100 * (now[2] / first[2] - 1):+.0f} %) {note}",
        flush=True,
    )


if __name__ == "__main__":
    main()
