"""Small networks and the handwritten digits for the compression tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import nn

from ipj_edge_compress import ArrayBatches


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Networks this small are slower on several threads, and much slower on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Residual(nn.Module):
    """A convolution around which the input is added."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 2 * channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(2 * channels)
        self.conv2 = nn.Conv2d(2 * channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.conv2(torch.relu(self.bn1(self.conv1(x)))))


class SmallNet(nn.Module):
    """Two residual groups on 8×8 digits."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.group1 = Residual(width)
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.group2 = Residual(2 * width)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.linear = nn.Linear(2 * width, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.group1(self.stem(image))
        x = self.group2(torch.relu(self.down(x)))
        return self.linear(self.pool(x).flatten(1))


@pytest.fixture
def small_net() -> nn.Module:
    torch.manual_seed(0)
    return SmallNet()


@pytest.fixture(scope="session")
def digits_arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training images and labels, test images and labels; float32 (n, 1, 8, 8) in 0..1."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images, labels = (digits.images[:, None] / 16).astype(np.float32), digits.target.astype(np.int64)
    test = np.arange(len(images)) % 5 == 0
    return images[~test], labels[~test], images[test], labels[test]


@pytest.fixture
def train_batches(digits_arrays: tuple[np.ndarray, ...]) -> ArrayBatches:
    return ArrayBatches(digits_arrays[0], digits_arrays[1], size=64, seed=0)


@pytest.fixture
def test_batches(digits_arrays: tuple[np.ndarray, ...]) -> ArrayBatches:
    return ArrayBatches(digits_arrays[2], digits_arrays[3], size=128)


@pytest.fixture
def tiny_batches() -> Callable[..., list[tuple[torch.Tensor, torch.Tensor]]]:
    """Batches of random vectors of length 4 with three classes, of the sizes given."""

    def make(*sizes: int, seed: int = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
        random = torch.Generator().manual_seed(seed)
        return [
            (torch.randn(size, 4, generator=random), torch.randint(0, 3, (size,), generator=random)) for size in sizes
        ]

    return make
