"""A small CNN for scikit-learn's handwritten digits (1,797 grey images of 8×8 pixels, values 0 to 16).

``build`` is the factory that ``ipj-edge convert examples/digits.py:build`` calls; ``python examples/digits.py DIR``
trains it on the data that ships with scikit-learn and writes all that the README's tour needs into DIR.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

SEED = 0
CALIBRATION_SAMPLES = 300


def build() -> nn.Module:
    """Return the network: image (N, 1, 8, 8) with values 0..1 to logits (N, 10)."""
    return nn.Sequential(
        _block(1, 16),
        _block(16, 32),
        nn.MaxPool2d(2),
        _block(32, 32),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )


def _block(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())


def load() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return (images, labels) for training and for testing: every fifth image is a test image."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images[:, None] / 16).astype(np.float32)
    test = np.arange(len(images)) % 5 == 0
    return (images[~test], digits.target[~test]), (images[test], digits.target[test])


def train(images: np.ndarray, labels: np.ndarray, *, epochs: int = 30, batch: int = 64) -> nn.Module:
    """Train the network with a fixed seed: Adam, one-cycle learning rate, images shifted by up to one pixel."""
    torch.manual_seed(SEED)
    net, x, y = build(), torch.from_numpy(images), torch.from_numpy(labels)
    optimizer = torch.optim.Adam(net.parameters())
    steps = epochs * (len(x) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=steps)
    for _ in range(epochs):
        order = torch.randperm(len(x))[: len(x) // batch * batch]
        for rows in order.split(batch):
            shift = tuple(torch.randint(-1, 2, (2,)).tolist())
            loss = nn.functional.cross_entropy(net(x[rows].roll(shift, (2, 3))), y[rows], label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return net.eval()


def accuracy(net: nn.Module, images: np.ndarray, labels: np.ndarray) -> float:
    """Return top-1 accuracy, 0..1."""
    with torch.no_grad():
        return float((net(torch.from_numpy(images)).argmax(1).numpy() == labels).mean())


def write(folder: Path) -> float:
    """Train, and write weights, labels, preprocessing, data and one image; return test accuracy."""
    from PIL import Image
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (images, labels), (test_images, test_labels) = load()
    net = train(images, labels)
    save_file(net.state_dict(), folder / "digits.safetensors")
    (folder / "digits.txt").write_text("zero\none\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n")
    (folder / "digits.toml").write_text(
        'size = [8, 8]\nchannels = "L"\nlayout = "NCHW"\nresize = "exact"\nscale = 0.00392156862745098\n'
    )
    np.savez(folder / "cal.npz", image=images[:CALIBRATION_SAMPLES])
    np.savez(folder / "test.npz", image=test_images, labels=test_labels)
    pixels = (test_images[3, 0] * 255).astype(np.uint8)
    Image.fromarray(pixels).resize((80, 80), Image.Resampling.NEAREST).save(folder / "image.png")
    return accuracy(net, test_images, test_labels)


if __name__ == "__main__":
    reached = write(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
    print(f"test accuracy {reached:.4f}")
