"""What early exit saves on CIFAR-10, measured: a network trained for it on part of the 4,000-image subset.

    python -m benchmarks.exits.early_exit_cifar [../shared/data] [--precision int8] [--train]

Trained on 2,500 images (mirrored and shifted anew every epoch), certified at harm ≤ 1 % with 95 % confidence on the
other 1,500, judged and timed on the 1,000 test images, single inferences against the unsplit last exit. The goal is
1.3 times less time on every engine. So few images make no good classifier: this shows what early exit saves, at the
accuracy that is printed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from time import perf_counter

import torch
from benchmarks.compress.shared import BLACK, cifar
from benchmarks.exits.shared import Case, Part, arguments, last_exit, measure, trained
from torch import nn

from ipj_edge_compress import MultiExit, TrainPlan, Variation, VariedImages, accuracies, train_jointly
from ipj_edge_compress.training.plans import EpochFigures

WEIGHTS = Path(tempfile.gettempdir()) / "ipj-edge-early-exit-cifar.pt"
TRAIN, EPOCHS = 2_500, 40
VARIED = Variation(shift=3, mirror=True, margin=BLACK)


def network() -> MultiExit:
    """Return three stages of growing cost, each with a head: 6, 17 and 86 million multiply-accumulates in total."""
    stages = (
        nn.Sequential(_conv(3, 24), _conv(24, 32, 2), _conv(32, 48)),
        nn.Sequential(_conv(48, 64, 2), _conv(64, 96), _conv(96, 96)),
        nn.Sequential(_conv(96, 160), _conv(160, 192), _conv(192, 192), _conv(192, 192)),
    )
    return MultiExit(stages, [_head(48), _head(96), _head(192)])


def _conv(inputs: int, outputs: int, stride: int = 1) -> nn.Module:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


def _head(channels: int) -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.3), nn.Linear(4 * channels, 10))


def build() -> nn.Module:
    """Return the network, with the weights trained last."""
    return trained(network(), WEIGHTS)


def build_plain() -> nn.Module:
    """Return its last exit alone."""
    return last_exit(build())


def main() -> None:
    """Train, convert, certify, measure, print."""
    chosen = arguments(__doc__ or "")
    images, labels = cifar.load_images(chosen.data / "cifar10", "train")
    if chosen.train or not WEIGHTS.exists():
        _train(Part(images[:TRAIN], labels[:TRAIN]))
    case = Case(
        name="cifar",
        factory=f"{__file__}:build",
        plain=f"{__file__}:build_plain",
        calibration=images[:500],
        tune=Part(images[TRAIN:], labels[TRAIN:]),
        test=Part(*cifar.load_images(chosen.data / "cifar10", "test")),
    )
    print(f"exits alone, on the test images: {_accuracies(case.test)}")
    measure(case, chosen.precision, goals=(1.3, 1.3))


def _train(part: Part) -> None:
    torch.manual_seed(0)
    net, start = network(), perf_counter()
    plan = TrainPlan(epochs=EPOCHS, learning_rate=4e-3, schedule="one-cycle", weight_decay=5e-3, precision="bf16")
    train_jointly(net, VariedImages(*part, VARIED, size=64), plan, progress=_progress)
    torch.save(net.state_dict(), WEIGHTS)
    print(f"trained {EPOCHS} epochs on {len(part.labels)} images in {perf_counter() - start:.0f} s")


def _progress(epoch: int, figures: EpochFigures) -> None:
    if epoch % 10 == 9:
        print(f"epoch {epoch + 1} of {EPOCHS}: loss {figures.loss:.3f}, {figures.seconds:.1f} s", flush=True)


def _accuracies(part: Part) -> list[float]:
    batch = (torch.from_numpy(part.images), torch.from_numpy(part.labels))
    return [round(one, 4) for one in accuracies(build(), [batch])]


if __name__ == "__main__":
    main()
