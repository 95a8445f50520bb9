"""Low rank on a model of linear layers: an MNIST autoencoder, its reconstruction error and its MACs.

    python -m benchmarks.compress.lowrank [../shared/data] [--minutes 12] [--models DIR]

Goals: at least 2 times fewer MACs at no more than 1 % more error, layers replaced only where their time falls. The
variant is chosen on training images kept aside; the test images judge the one that was chosen.
"""

from __future__ import annotations

from copy import deepcopy
from itertools import pairwise, product
from pathlib import Path
from typing import NamedTuple

import torch
from benchmarks.compress.shared import Clock, Kept, OutOfTime, arguments, compare_on_targets, mnist
from torch import nn

from ipj_edge_compress import ArrayBatches, LowRankPlan, TrainPlan, factorise, mean_squared_error, train
from ipj_edge_compress.cost.size import size_of
from ipj_edge_compress.training.scores import negative_mean_squared_error

# Shares of the multiply-accumulates to keep, each by the weights alone and by what the layers' inputs are like.
SHARES = (0.5, 0.4, 0.3)


class Data(NamedTuple):
    """Batches to train on, to choose by and to judge by."""

    train: ArrayBatches
    aside: ArrayBatches
    test: ArrayBatches


def autoencoder() -> nn.Module:
    """Return 784 → 512 → 512 → 512 → 16 → 512 → 512 → 512 → 784, much like the MLPerf Tiny anomaly detector."""
    widths = (784, 512, 512, 512, 16, 512, 512, 512)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(512, 784))


def main() -> None:
    """Train, factorise further and further, train on, choose on images kept aside, judge on the test images."""
    more = {"epochs": 30, "after": 10, "models": Path()}
    chosen = arguments(__doc__ or "", minutes=12, **more)
    clock, kept = Clock(chosen.minutes), Kept(chosen.models)
    x = torch.from_numpy(mnist(chosen.data, "train", 14_000)[0]).flatten(1)
    test_x = torch.from_numpy(mnist(chosen.data, "t10k", 10_000)[0]).flatten(1)
    data = Data(
        train=ArrayBatches(x[:12_000], x[:12_000], size=128, seed=0),
        aside=ArrayBatches(x[12_000:], x[12_000:], size=500),
        test=ArrayBatches(test_x, test_x, size=500),
    )

    def trained() -> nn.Module:
        torch.manual_seed(0)
        net = autoencoder()
        plan = TrainPlan(epochs=chosen.epochs, schedule="one-cycle", learning_rate=2e-3)
        train(net, data.train, plan, loss=mean_squared_error, progress=clock)
        return net

    def trained_on(net: nn.Module) -> nn.Module:
        plan = TrainPlan(epochs=chosen.after, learning_rate=5e-4)
        train(net, data.train, plan, loss=mean_squared_error, progress=clock)
        return net

    try:
        net = kept.once(f"lowrank-{chosen.epochs}", trained)
        # The same epochs that the factored ones get, so that they are not compared with less training.
        reference = kept.once(f"lowrank-{chosen.epochs}-{chosen.after}", lambda: trained_on(deepcopy(net)))
        made = {}
        for share, seen in product(SHARES, (False, True)):
            name = f"{100 * share:g} % by {'inputs' if seen else 'weights'}"

            def smaller(share: float = share, seen: bool = seen) -> nn.Module:
                return trained_on(factored(net, share, data.train if seen else None))

            made[name] = kept.once(f"lowrank-{chosen.epochs}-{chosen.after}-{share:g}-{seen}", smaller)
            print(_line(name, made[name], reference, data.aside), flush=True)
    except OutOfTime:
        print(f"the time cap of {chosen.minutes:g} minutes ended it here")
        return
    _judge(made, reference, data)


def factored(net: nn.Module, share: float, batches: ArrayBatches | None) -> nn.Module:
    """Return a copy of a network at a lower rank."""
    made = deepcopy(net)
    factorise(made, torch.zeros(1, 784), LowRankPlan(energy=0.3, target_macs=share), batches=batches)
    return made


def _judge(made: dict[str, nn.Module], reference: nn.Module, data: Data) -> None:
    """Choose the lowest error of those with half the MACs, on images kept aside; print what it does on test images."""
    small = {name: one for name, one in made.items() if _fewer(reference, one) >= 2}
    if not small:
        print("missed: nothing halves the multiply-accumulates")
        return
    name = min(small, key=lambda one: _error(small[one], data.aside))
    best = small[name]
    loss = _error(best, data.test) / _error(reference, data.test) - 1
    print(_line(f"test images, {name}", best, reference, data.test))
    print(f"goal: ≥ 2× fewer multiply-accumulates at ≤ 1 % more error: {'met' if loss <= 0.01 else 'missed'}")
    times = compare_on_targets({"whole": reference, "factored": best}, next(iter(data.test))[0][:64].numpy())
    for target, one in times.items():
        print(f"  {target:<16} {1e6 * one['whole']:.1f} µs → {1e6 * one['factored']:.1f} µs")


def _fewer(whole: nn.Module, small: nn.Module) -> float:
    return size_of(whole, torch.zeros(1, 784)).macs / size_of(small, torch.zeros(1, 784)).macs


def _error(net: nn.Module, batches: ArrayBatches) -> float:
    return -negative_mean_squared_error(net, batches)


def _line(name: str, net: nn.Module, reference: nn.Module, batches: ArrayBatches) -> str:
    was, now = _error(reference, batches), _error(net, batches)
    more = f"{100 * (now / was - 1):+.2f} %"
    return f"{name}: {_fewer(reference, net):.2f}× fewer MACs, error {was:.5f} → {now:.5f} ({more})"


if __name__ == "__main__":
    main()
