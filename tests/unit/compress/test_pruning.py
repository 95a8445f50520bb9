"""Pruning: tensors shrink through every kind of connection, and what cannot be pruned is found out before."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ipj_edge.errors import ConfigError
from ipj_edge_compress import (
    ArrayBatches,
    GoalError,
    ModelError,
    MultiExit,
    PrunePlan,
    TrainPlan,
    accuracy,
    prune,
    train,
)
from ipj_edge_compress.cost.size import seconds_of, size_of

IMAGE = torch.rand(2, 1, 8, 8)


class Concatenating(nn.Module):
    """Concatenation, depthwise and grouped convolutions, and a flattened linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(1, 8, 3, padding=1)
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.grouped = nn.Conv2d(16, 16, 3, padding=1, groups=2)
        self.norm, self.mix = nn.BatchNorm2d(16), nn.Conv2d(16, 12, 1)
        self.linear = nn.Linear(12 * 16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.cat([self.a(x), self.b(x)], 1)
        x = torch.relu(self.norm(self.grouped(torch.relu(self.depthwise(x)))))
        x = nn.functional.max_pool2d(self.mix(x), 2)
        return self.linear(x.flatten(1))


class Padding(nn.Module):
    """A shortcut that pads channels with zeros, as a ResNet's option A does; the inner layer can be pruned."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.inner = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.back, self.linear = nn.Conv2d(16, 16, 3, padding=1), nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        wide = nn.functional.pad(x, (0, 0, 0, 0, 4, 4))
        x = self.back(torch.relu(self.inner(x))) + wide
        return self.linear(torch.relu(x).mean((2, 3)))


def test_a_residual_network_gets_smaller_tensors(small_net: nn.Module) -> None:
    report = prune(small_net, IMAGE, PrunePlan(target=0.5))
    assert report.after.macs <= 0.5 * report.before.macs
    assert report.after.parameters < report.before.parameters
    assert report.after == size_of(small_net, IMAGE)
    assert small_net(IMAGE).shape == (2, 10)
    assert list(report.left_alone) == ["linear"]


@pytest.mark.parametrize("scope", ["global", "layer"])
def test_concatenation_depthwise_and_grouped_convolutions_shrink_together(scope: str) -> None:
    torch.manual_seed(0)
    net = Concatenating()
    report = prune(net, IMAGE, PrunePlan(target=0.6, scope=scope))  # type: ignore[arg-type]
    assert report.after.macs <= 0.6 * report.before.macs
    assert net.depthwise.weight.shape[0] == net.a.weight.shape[0] + net.b.weight.shape[0]
    assert net(IMAGE).shape == (2, 10)


def test_layers_whose_channels_are_padded_are_left_alone_and_named() -> None:
    torch.manual_seed(0)
    net = Padding()
    report = prune(net, IMAGE, PrunePlan(target=0.6))
    assert {"stem", "back", "linear"} == set(report.left_alone)
    assert net.inner.out_channels < 16
    assert net.stem.out_channels == 8


def test_a_model_that_can_only_be_pruned_in_part_is_refused_if_asked() -> None:
    with pytest.raises(ModelError, match="'stem' cannot be pruned: without one of its channels"):
        prune(Padding(), IMAGE, PrunePlan(target=0.6, partly=False))


class FixedView(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.linear = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 8, 3), nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.b(torch.relu(self.a(x))).view(-1, 128))


def test_a_view_with_fixed_sizes_is_found_out_before_it_breaks() -> None:
    net = FixedView()
    report = prune(net, IMAGE, PrunePlan(target=0.7))
    assert set(report.left_alone) == {"b", "linear"}
    assert net(IMAGE).shape == (2, 10)


def test_every_exit_follows_when_channels_go(small_net: nn.Module) -> None:
    net = MultiExit.attach(small_net, {"group1": "auto", "down": "linear"}, example=IMAGE)
    report = prune(net, IMAGE, PrunePlan(target=0.5))
    assert all(one.shape == (2, 10) for one in net(IMAGE).values())
    assert report.cost <= 0.5
    assert net.heads[0][2].in_features == net.stages[0].group1.conv2.out_channels  # type: ignore[index,union-attr]


def test_no_layer_is_left_without_channels(small_net: nn.Module) -> None:
    with pytest.raises(GoalError, match=r"% of the cost, 0\.1 % was wanted"):
        prune(small_net, IMAGE, PrunePlan(target=0.001))
    assert all(0 not in parameter.shape for parameter in small_net.parameters())


def test_the_channels_left_are_a_multiple(small_net: nn.Module) -> None:
    prune(small_net, IMAGE, PrunePlan(target=0.6, round_to=4))
    assert {one.out_channels % 4 for one in small_net.modules() if isinstance(one, nn.Conv2d)} == {0}


def test_pruning_in_rounds_recovers_between_them(
    small_net: nn.Module, train_batches: ArrayBatches, test_batches: ArrayBatches
) -> None:
    plan = TrainPlan(epochs=4, learning_rate=0.01, schedule="one-cycle")
    train(small_net, train_batches, plan)
    sizes: list[int] = []

    def recover(net: nn.Module) -> None:
        sizes.append(size_of(net, IMAGE).macs)
        train(net, train_batches, TrainPlan(epochs=2, learning_rate=0.005))

    report = prune(
        small_net, IMAGE, PrunePlan(target=0.4, criterion="taylor", rounds=2), batches=train_batches, recover=recover
    )
    assert sizes[0] > sizes[1]
    assert report.cost <= 0.4
    assert accuracy(small_net, test_batches) > 0.85


@pytest.mark.parametrize("criterion", ["l1", "bn"])
def test_the_least_important_channel_goes_first(criterion: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten())
    with torch.no_grad():
        net[1].weight.fill_(1.0)
        net[1].weight[3], net[0].weight[3], net[3].weight[:, 3] = 1e-6, 1e-6, 1e-6
        kept = net[0].bias[[0, 1, 2, 4, 5, 6, 7]].clone()
    prune(net, IMAGE, PrunePlan(target=0.99, criterion=criterion))  # type: ignore[arg-type]
    assert torch.equal(net[0].bias, kept)


def test_a_cost_of_the_users_own_decides(small_net: nn.Module) -> None:
    def parameters(net: nn.Module) -> float:
        return float(sum(one.numel() for one in net.parameters()))

    report = prune(small_net, IMAGE, PrunePlan(target=0.7), cost=parameters)
    assert report.after.parameters <= 0.7 * report.before.parameters


def test_a_model_with_nothing_to_prune_is_refused() -> None:
    with pytest.raises(ModelError, match="nothing smaller or faster"):
        prune(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), IMAGE)


def test_arguments_out_of_range_are_refused(small_net: nn.Module) -> None:
    with pytest.raises(ConfigError, match="needs batches"):
        prune(small_net, IMAGE, PrunePlan(criterion="taylor"))
    with pytest.raises(ConfigError, match="between 0 and 1"):
        PrunePlan(target=1.5)
    with pytest.raises(ModelError, match="no module 'stme'"):
        prune(small_net, IMAGE, PrunePlan(without=("stme",)))


def test_a_larger_layer_takes_longer_on_the_same_clock() -> None:
    small, large = nn.Linear(32, 32), nn.Sequential(nn.Linear(32, 2048), nn.Linear(2048, 32))
    quick, slow = seconds_of([small, large], torch.zeros(1, 32))
    assert slow > quick
