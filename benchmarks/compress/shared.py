"""What the compression benchmarks share: public data, a clock that ends training, models timed on real targets."""

from __future__ import annotations

import argparse
import gzip
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch
from benchmarks.shared import public_data
from benchmarks.shared.interleaved import medians_s
from examples import cifar
from torch import nn

import ipj_edge
from ipj_edge.conversion import ConversionOptions, ConvertRequest, convert
from ipj_edge.samples.data import Samples, digest
from ipj_edge.values import Precision, TrainedRanges
from ipj_edge_compress import MultiExit, Quantized
from ipj_edge_compress.recipes.programs import export
from ipj_edge_compress.training.checkpoints import save_atomically
from ipj_edge_compress.training.losses import logits_of

# What comes in at the edge of a shifted image, as when the public networks were trained.
BLACK = tuple((-cifar.MEAN / cifar.STD).tolist())
TARGETS = ("openvino-cpu", "onnxruntime-cpu", "tflite-cpu")


class OutOfTime(Exception):  # it is no error: the figures so far are printed
    """The benchmark's time cap is over."""


class Clock:
    """Counts down a time cap; give it to trainings as their progress."""

    def __init__(self, minutes: float) -> None:
        self._end_s = monotonic() + 60 * minutes

    def __call__(self, _epoch: int, _figures: object) -> None:
        self.check()

    def check(self) -> None:
        """Raise when the time is over."""
        if monotonic() > self._end_s:
            raise OutOfTime


class Kept:
    """Trained models in a folder, found again by name: measuring anew needs no training. Pickles: your own folder."""

    def __init__(self, folder: Path) -> None:
        """Take a folder; ``Path()`` keeps nothing."""
        self._folder = folder if folder != Path() else None

    def file(self, name: str) -> Path | None:
        """Return a file's place in the folder, such as that of a training that goes on where it was ended."""
        if self._folder is None:
            return None
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder / name

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what was made before under a name, else make it; the name has to tell settings apart."""
        if self._folder is None:
            return make()
        path = self.file(f"{name}.pt")
        assert path is not None
        if not path.exists():
            save_atomically(make(), path)
            for unfinished in path.parent.glob(f"{name}.training*"):
                unfinished.unlink()
        return torch.load(path, weights_only=False)


def arguments(text: str, *, minutes: float, **more: Any) -> argparse.Namespace:
    """Parse the arguments that all of them take: the data folder and the time cap."""
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    public_data.add_argument(parser)
    parser.add_argument("--minutes", type=float, default=minutes, help="time cap")
    for name, value in more.items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    return parser.parse_args()


def trained_ranges(made: Quantized, calibration: np.ndarray) -> TrainedRanges:
    """Return the ranges of a network trained for int8, and the inputs they were recorded with."""
    samples = Samples(arrays={"x": calibration}, labels=None, count=len(calibration))
    return TrainedRanges(calibration_sha256=digest(samples), activations=made.ranges)


def resnet(data: Path, depth: int) -> nn.Module:
    """Return ResNet-20 or ResNet-56 with its public weights."""
    files = {20: "resnet20-12fca82f.th", 56: "resnet56-4bfd9763.th"}
    make = {20: cifar.resnet20, 56: cifar.resnet56}
    return cifar.load_public_weights(make[depth](), data / "models" / "cifar10_resnet20" / files[depth])


def mnist(data: Path, name: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first images (n, 1, 28, 28) in 0..1 and labels; name is ``train`` or ``t10k``."""
    with gzip.open(data / "mnist" / f"{name}-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(16 + 784 * count), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(data / "mnist" / f"{name}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(8 + count), np.uint8, offset=8).astype(np.int64)
    return (pixels / 255).astype(np.float32), labels


def bundle_of(
    module: nn.Module,
    target: str,
    precision: Precision,
    calibration: np.ndarray,
    folder: Path,
    name: str,
    *,
    ranges: TrainedRanges | None = None,
    data: str | None = None,
) -> tuple[Path | None, tuple[float, float] | None, str]:
    """Convert a module for a target; return the bundle, (source, bundle) accuracy, and why there is none."""
    program, samples = folder / f"{name}.pt2", folder / f"{name}.npz"
    export(module, "x", torch.from_numpy(calibration[:2]), program)
    np.savez(samples, x=calibration)
    request = ConvertRequest(
        source=str(program), targets=(target,), precisions=(precision,), into=folder, name=name, force=True,
        calibration=str(samples), data=data, tolerance=1.0,
        labels=tuple(str(number) for number in range(_classes(module, calibration))),
        options=ConversionOptions(
            ranges=ranges if precision == "int8" else None,
            split_at=("exits",) if isinstance(module, MultiExit) else (),
        ),
    )  # fmt: skip
    (outcome,) = convert(request)
    return (None if outcome.bundle is None else outcome.bundle.path), outcome.accuracy, str(outcome.error or "")


def _classes(module: nn.Module, x: np.ndarray) -> int:
    """Return the number of classes a model scores; 0 for one that does not look like a classifier."""
    with torch.no_grad():
        scores = logits_of(module.eval()(torch.from_numpy(x[:2])))[-1]
    return scores.shape[-1] if scores.ndim == 2 and scores.shape[-1] <= 20 else 0


def seconds_on(target: str, bundles: Mapping[str, Path], x: np.ndarray, rounds: int = 400) -> dict[str, float]:
    """Return the median seconds of one inference of each bundle, on one thread, taking turns."""
    models = {name: ipj_edge.load(path, threads=1) for name, path in bundles.items()}
    try:
        calls = {name: (lambda model=model: model.run(x[:1])) for name, model in models.items()}
        return medians_s(calls, rounds)
    finally:
        for model in models.values():
            model.close()


def compare_on_targets(
    modules: Mapping[str, nn.Module], x: np.ndarray, targets: tuple[str, ...] = TARGETS
) -> dict[str, dict[str, float]]:
    """Convert modules to fp32 for each target and return seconds by target and name."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for target in targets:
            made = {
                name: bundle_of(module, target, "fp32", x[:64], Path(folder), name)[0]
                for name, module in modules.items()
            }
            found[target] = seconds_on(target, {name: path for name, path in made.items() if path is not None}, x)
    return found
