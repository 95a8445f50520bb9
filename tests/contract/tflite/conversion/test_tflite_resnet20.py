"""A real network on real images: ResNet-20 on the first 1,000 test images of CIFAR-10.

Model: akamaster/pytorch_resnet_cifar10, exported with torch.export. Data: Krizhevsky 2009.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from ipj_edge.values import TensorSpec

MEAN, STD = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])

pytestmark = [pytest.mark.data, pytest.mark.slow]


class Pt2Source:
    """The exported network as a source, without the sources package."""

    def __init__(self, path: Path) -> None:
        self.inputs = (TensorSpec(name="image", shape=("batch", 3, 32, 32), dtype="float32"),)
        self.outputs = (TensorSpec(name="logits", shape=("batch", 10), dtype="float32"),)
        self._module = torch.export.load(path).module()

    def torch_module(self) -> torch.nn.Module:
        module = self._module

        class Tuple(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = module

            def forward(self, image: torch.Tensor) -> tuple[torch.Tensor]:
                return (self.inner(image),)

        return Tuple()

    def run(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        with torch.no_grad():
            return {"logits": self._module(torch.from_numpy(feeds["image"])).numpy()}


def images(folder: Path, name: str) -> np.ndarray:
    """Return 1,000 images, normalised, float32 of shape (1000, 3, 32, 32)."""
    image_module = pytest.importorskip("PIL.Image")
    with image_module.open(folder / "cifar10" / name) as sheet:
        tiles = np.asarray(sheet.convert("RGB")).reshape(25, 32, 40, 32, 3).transpose(0, 2, 1, 3, 4)
    pixels = tiles.reshape(1000, 32, 32, 3).astype(np.float32) / 255
    return np.ascontiguousarray(((pixels - MEAN) / STD).transpose(0, 3, 1, 2))


@pytest.fixture(scope="module")
def source(data_folder) -> Pt2Source:
    return Pt2Source(data_folder / "models/cifar10_resnet20/resnet20_cifar10.pt2")


def accuracy(made, folder: Path) -> float:
    labels = np.load(folder / "cifar10/test_labels.npy")
    logits = made.run({"image": images(folder, "test_0.webp")})["logits"]
    return float(np.mean(logits.argmax(-1) == labels))


def test_resnet20_keeps_its_accuracy_in_fp32(converted, source, data_folder):
    made = converted(source)
    assert accuracy(made, data_folder) == pytest.approx(0.915, abs=0.002)
    check = {"image": images(data_folder, "test_0.webp")[:20]}
    assert made.relative_l2(check)["logits"] < 1e-4


def test_resnet20_loses_little_accuracy_in_int8(converted, source, data_folder):
    made = converted(source, "int8", {"image": images(data_folder, "train_0.webp")[:250]})
    assert made.files.operators.float_operators == ()
    assert accuracy(made, data_folder) >= 0.90
    check = {"image": images(data_folder, "test_0.webp")[:100]}
    assert made.relative_l2(check)["logits"] < 0.15
