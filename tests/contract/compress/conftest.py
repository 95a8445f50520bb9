"""A small network trained for int8, and its bundles for every engine, made by the real converters."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import msgspec
import numpy as np
import pytest
import torch
from torch import nn

from ipj_edge.conversion import ConvertRequest, Outcome, convert
from ipj_edge.samples.data import Samples, digest
from ipj_edge.values import ConversionOptions, TensorSpec, TrainedRanges
from ipj_edge_compress import ArrayBatches, TrainPlan, train
from ipj_edge_compress.quantize.training import Quantized, train_quantized

TARGETS = ("onnxruntime-cpu", "openvino-cpu", "tflite-cpu")


class Depthwise(nn.Module):
    """A depthwise network with a shortcut, on 8×8 digits."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12), nn.ReLU6())
        self.depth = nn.Sequential(nn.Conv2d(12, 12, 3, padding=1, groups=12), nn.BatchNorm2d(12), nn.ReLU())
        self.point = nn.Conv2d(12, 12, 1)
        self.pool, self.linear = nn.MaxPool2d(2), nn.Linear(12 * 16, 10)
        self.drop = nn.Dropout(0.1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.stem(image)
        x = torch.relu(x + self.point(self.depth(x)))
        return self.linear(self.drop(self.pool(x)).flatten(1))


class Trained(msgspec.Struct, frozen=True):
    """What the training handed over, and what came of its conversion."""

    quantized: Quantized
    request: ConvertRequest
    outcomes: tuple[Outcome, ...]


@pytest.fixture(scope="session")
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Trained:
    """The network, trained, trained again as int8, and converted for every engine with its ranges."""
    from sklearn.datasets import load_digits

    folder = tmp_path_factory.mktemp("trained")
    digits = load_digits()
    images, labels = (digits.images[:, None] / 16).astype(np.float32), digits.target.astype(np.int64)
    torch.manual_seed(0)
    net, batches = Depthwise(), ArrayBatches(images[300:], labels[300:], size=64, seed=0)
    train(net, batches, TrainPlan(epochs=4, learning_rate=0.01, schedule="one-cycle"))
    quantized = train_quantized(net, batches, [torch.from_numpy(images[:200])], TrainPlan(epochs=1, learning_rate=1e-3))
    np.savez(folder / "calibration.npz", image=images[:200])
    np.savez(folder / "test.npz", image=images[:300], labels=labels[:300])
    sha256 = digest(Samples(arrays={"image": images[:200]}, labels=None, count=200))
    request = ConvertRequest(
        source=_factory(folder, quantized.module),
        targets=TARGETS,
        precisions=("int8",),
        into=folder / "dist",
        inputs=(TensorSpec(name="image", shape=(1, 1, 8, 8), dtype="float32"),),
        calibration=str(folder / "calibration.npz"),
        data=str(folder / "test.npz"),
        options=ConversionOptions(ranges=TrainedRanges(calibration_sha256=sha256, activations=quantized.ranges)),
    )
    return Trained(quantized, request, convert(request))


def _factory(folder: Path, module: nn.Module) -> str:
    name = "ipj_edge_test_trained_network"
    made = ModuleType(name)
    made.__file__ = str(folder / "net.py")
    Path(made.__file__).write_text("# the network of a test\n")
    made.build = lambda: module  # type: ignore[attr-defined]
    sys.modules[name] = made
    return f"{name}:build"
