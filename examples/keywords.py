"""Keyword spotting with a small transformer encoder that can answer after every layer.

    python examples/keywords.py ../shared/data/kws keywords     # a minute; writes the folder keywords
    ipj-edge convert examples/keywords.py:build --weights keywords/keywords.safetensors \
        --input features:1x49x10 --labels keywords/labels.txt --precision int8 --calibration keywords/cal.npz \
        --target openvino-cpu --target tflite-cpu -o keywords/dist
    ipj-edge exits tune keywords/dist/keywords.tflite-cpu.int8.ipj --data keywords/tune.npz --max-harm 2pp

The data are the 1,000 clips of the MLPerf Tiny keyword-spotting set as (49, 10) features: 600 to train on, 400 to tune
the exits on. Each encoder layer has a head of its own: mean over the steps, layer norm, linear.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from ipj_edge_compress import ArrayBatches, MultiExit, TrainPlan, accuracies, train_jointly

CLASSES, WIDTH, LAYERS = 12, 48, 4
TRAIN = 600


class Encoder(nn.Module):
    """Features (N, 49, 10) to logits (N, 12)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(10, WIDTH)
        self.position = nn.Parameter(torch.zeros(49, WIDTH))
        self.layers = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.1, activation="gelu", batch_first=True)
                for _ in range(LAYERS)
            )
        )
        self.norm, self.linear = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return logits (N, 12)."""
        return self.linear(self.norm(self.layers(self.embed(features) + self.position).mean(1)))


def build() -> MultiExit:
    """Return the encoder with a head behind every layer: logits exit_1 … exit_3 and final."""
    exits = {f"layers.{index}": "linear" for index in range(LAYERS - 1)}
    return MultiExit.attach(Encoder(), exits, example=torch.zeros(2, 49, 10))


def load(folder: Path) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return features float32 (1000, 49, 10), about ±1, labels (1000,) and the names of the classes."""
    with np.load(folder / "mlperf_tiny_kws01.npz") as file:
        features, labels = file["features_int8"].astype(np.float32), file["labels"].astype(np.int64)
    names = (folder / "mlperf_tiny_kws01_labels.txt").read_text().split()
    # The set is int8 with scale 0.5847029 and zero point 83.
    return (features - 83) * np.float32(0.5847029 / 64), labels, names


def main(data: str, into: str) -> None:
    """Train all exits together and write what `ipj-edge convert` and `ipj-edge exits tune` take."""
    x, y, names = load(Path(data))
    order = np.random.default_rng(0).permutation(len(x))
    seen, fresh = order[:TRAIN], order[TRAIN:]
    torch.manual_seed(0)
    net = build()
    plan = TrainPlan(epochs=60, learning_rate=2e-3, schedule="one-cycle", weight_decay=1e-2)
    train_jointly(net, ArrayBatches(x[seen], y[seen], size=32, seed=0), plan)
    held = [(torch.from_numpy(x[fresh]), torch.from_numpy(y[fresh]))]
    print("accuracy by exit on the clips held back:", [round(one, 3) for one in accuracies(net, held)])
    folder = Path(into)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(net.state_dict(), folder / "keywords.safetensors")
    np.savez(folder / "cal.npz", features=x[seen[:200]])
    np.savez(folder / "tune.npz", features=x[fresh], labels=y[fresh])
    (folder / "labels.txt").write_text("\n".join(names) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
