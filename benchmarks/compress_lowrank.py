"""Low rank on a model of linear layers: an MNIST autoencoder, its reconstruction error and its MACs.

    python benchmarks/compress_lowrank.py [../shared/data] [--minutes 8] [--epochs 8]

Goals: at least 2 times fewer MACs at no more than 1 % more error, layers replaced only where their time falls.
"""

from __future__ import annotations

from copy import deepcopy
from itertools import pairwise

import torch
from compress_bench import Clock, OutOfTime, arguments, compare_on_targets, mnist
from torch import nn

from ipj_edge_compress import ArrayBatches, LowRankPlan, TrainPlan, factorise, mean_squared_error, train
from ipj_edge_compress.scores import negative_mean_squared_error


def autoencoder() -> nn.Module:
    """Return 784 → 512 → 512 → 512 → 16 → 512 → 512 → 512 → 784, much like the MLPerf Tiny anomaly detector."""
    widths = (784, 512, 512, 512, 16, 512, 512, 512)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(512, 784))


def main() -> None:
    """Train, factorise at falling energies, train on for two epochs, print."""
    chosen = arguments(__doc__ or "", minutes=8, epochs=8)
    clock = Clock(chosen.minutes)
    x = torch.from_numpy(mnist(chosen.data, "train", 12_000)[0]).flatten(1)
    test_x = torch.from_numpy(mnist(chosen.data, "t10k", 2_000)[0]).flatten(1)
    batches, test = ArrayBatches(x, x, size=128, seed=0), ArrayBatches(test_x, test_x, size=500)
    torch.manual_seed(0)
    net = autoencoder()
    try:
        plan = TrainPlan(epochs=chosen.epochs, schedule="one-cycle", learning_rate=2e-3)
        train(net, batches, plan, loss=mean_squared_error, progress=clock)
        # The same two epochs that the factored ones get, so that they are not compared with less training.
        more = TrainPlan(epochs=2, learning_rate=5e-4)
        reference = deepcopy(net)
        train(reference, batches, more, loss=mean_squared_error, progress=clock)
        error = -negative_mean_squared_error(reference, test)
        print(f"autoencoder: mean squared error {error:.5f}")
        for energy in (0.95, 0.8, 0.65, 0.5):
            _one(net, reference, energy, error, batches, test, more, clock)
    except OutOfTime:
        print(f"the time cap of {chosen.minutes:g} minutes ended it here")


def _one(
    net: nn.Module, reference: nn.Module, energy: float, error: float, batches: ArrayBatches, test: ArrayBatches,
    more: TrainPlan, clock: Clock,
) -> None:  # fmt: skip
    made = deepcopy(net)
    example = torch.zeros(1, 784)
    report = factorise(made, example, LowRankPlan(energy=energy))
    kept = sum(one.kept for one in report.layers.values())
    if not kept:
        print(f"  energy {energy:g}: no layer gets faster")
        return
    raw = -negative_mean_squared_error(made, test)
    train(made, batches, more, loss=mean_squared_error, progress=clock)
    tuned = -negative_mean_squared_error(made, test)
    fewer, loss = report.before.macs / report.after.macs, 100 * (tuned / error - 1)
    times = compare_on_targets({"whole": reference, "factored": made}, next(iter(test))[0][:64].numpy())
    shown = ", ".join(f"{target} {one['whole'] / one['factored']:.2f}×" for target, one in times.items())
    met = "met" if fewer >= 2 and loss <= 1 else "missed"
    print(
        f"  energy {energy:g}: {kept} of {len(report.layers)} layers, {fewer:.2f}× fewer MACs, error {raw:.5f}, "
        f"trained on {tuned:.5f} ({loss:+.2f} %): {met}; time {shown}",
        flush=True,
    )


if __name__ == "__main__":
    main()
