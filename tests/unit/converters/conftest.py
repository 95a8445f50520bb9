"""Fixtures for sources and the ONNX converter: factories written to files, small ONNX graphs, the real models."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ipj_edge.protocols import SourceRequest
from ipj_edge.values import TensorSpec

NETS = """
import torch
from torch import nn

class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.head = nn.Linear(8, 10)

    def forward(self, image):
        features = torch.relu(self.norm(self.conv(image)))
        features = torch.relu(self.depthwise(features))
        return self.head(nn.functional.adaptive_avg_pool2d(features, 1).flatten(1))

def build():
    return Cnn()
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a Python file and return its path."""

    def write_file(text: str, name: str = "net.py") -> Path:
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return path

    return write_file


@pytest.fixture
def nets(write: Callable[..., Path]) -> Path:
    """Return a file with a small CNN and its factory ``build``."""
    return write(NETS)


@pytest.fixture
def request_for(tmp_path: Path) -> Callable[..., SourceRequest]:
    """Make a request with its own work folder; inputs are specs or (name, shape[, dtype])."""

    def make(location: object, *inputs: TensorSpec | tuple[object, ...], **more: object) -> SourceRequest:
        workdir = tmp_path / f"work{len(list(tmp_path.iterdir()))}"
        workdir.mkdir()
        specs = tuple(item if isinstance(item, TensorSpec) else spec(*item) for item in inputs)
        return SourceRequest(location=str(location), inputs=specs, workdir=workdir, **more)

    return make


def spec(name: str, shape: tuple[int, ...], dtype: str = "float32") -> TensorSpec:
    """Describe an input as the command line does: axis 0 is the batch, a scalar has none."""
    return TensorSpec(name=name, shape=shape, dtype=dtype, batch_axis=0 if shape else None)


@pytest.fixture(scope="session")
def cifar(data_folder: Path) -> dict[str, np.ndarray]:
    """Return CIFAR-10: ``test`` and ``train`` as uint8 NHWC (1000 each) and the test ``labels``."""
    from PIL import Image

    def images(name: str) -> np.ndarray:
        tiles = np.asarray(Image.open(data_folder / "cifar10" / name).convert("RGB"))
        return tiles.reshape(25, 32, 40, 32, 3).transpose(0, 2, 1, 3, 4).reshape(1000, 32, 32, 3)

    return {
        "test": images("test_0.webp"),
        "train": images("train_0.webp"),
        "labels": np.load(data_folder / "cifar10" / "test_labels.npy"),
    }


@pytest.fixture(scope="session")
def mnist(data_folder: Path) -> dict[str, np.ndarray]:
    """Return the MNIST test set: ``images`` as float32 (10000, 1, 28, 28) in 0..255, and ``labels``."""
    import gzip

    raw = gzip.decompress((data_folder / "mnist" / "t10k-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((data_folder / "mnist" / "t10k-labels-idx1-ubyte.gz").read_bytes())
    images = np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 1, 28, 28).astype(np.float32)
    return {"images": images, "labels": np.frombuffer(labels, np.uint8, offset=8)}


def normalised(images: np.ndarray) -> np.ndarray:
    """Return uint8 NHWC images as ResNet-20 takes them: NCHW, ImageNet mean and deviation."""
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    scaled = (images / 255.0 - mean) / std
    return np.ascontiguousarray(scaled.transpose(0, 3, 1, 2), dtype=np.float32)


@pytest.fixture(scope="session")
def normalise() -> Callable[[np.ndarray], np.ndarray]:
    """Return the function that prepares images for ResNet-20."""
    return normalised
