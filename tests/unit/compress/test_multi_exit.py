"""Networks with exits: cutting at named modules, heads, training of heads and of the whole."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from ipj_edge_compress import ArrayBatches, ModelError, MultiExit, TrainPlan, accuracies, train_heads, train_jointly
from ipj_edge_compress.exits.heads import make_head
from ipj_edge_compress.exits.multi_exit import first

IMAGE = torch.zeros(2, 1, 8, 8)


def exits_on(net: nn.Module) -> MultiExit:
    return MultiExit.attach(net, {"group1": "auto", "down": "linear"}, example=IMAGE)


def test_the_last_exit_is_the_backbone_bit_for_bit(small_net: nn.Module) -> None:
    small_net.eval()
    x = torch.randn(5, 1, 8, 8)
    want = small_net(x)
    net = exits_on(small_net)
    answers = net(x)
    assert list(answers) == ["exit_1", "exit_2", "final"]
    assert torch.equal(answers["final"], want)
    assert all(one.shape == (5, 10) for one in answers.values())


def test_exits_are_sorted_by_depth_whatever_order_they_are_named_in(small_net: nn.Module) -> None:
    one = MultiExit.attach(small_net, {"group1": "linear", "down": "linear"}, example=IMAGE)
    other = MultiExit.attach(small_net, {"down": "linear", "group1": "linear"}, example=IMAGE)
    assert [sum(p.numel() for p in stage.parameters()) for stage in one.stages] == [
        sum(p.numel() for p in stage.parameters()) for stage in other.stages
    ]


def test_stages_share_the_weights_of_the_backbone(small_net: nn.Module) -> None:
    net = exits_on(small_net)
    own = {id(parameter) for parameter in small_net.parameters()}
    assert {id(parameter) for stage in net.stages for parameter in stage.parameters()} == own


def test_a_sequential_is_cut_at_its_numbers() -> None:
    backbone = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 3))
    x = torch.randn(7, 4)
    net = MultiExit.attach(backbone, {"1": "auto", "2.0": "auto"}, example=x)
    assert torch.equal(net(x)["final"], backbone(x))


class LongSkip(nn.Module):
    """The input is added at the end, a position table is added on the way, and a size is used after the cuts."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.side = nn.Linear(6, 6)
        self.table = nn.Parameter(torch.arange(6.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.size(0)
        early = self.a(x)
        aside = self.side(x)
        deep = self.b(early + self.table)
        return self.c((deep + x + aside).reshape(rows, 6)) + self.table[:3]


def test_long_skips_are_handed_on_and_sizes_are_worked_out_again() -> None:
    torch.manual_seed(0)
    backbone = LongSkip()
    net = MultiExit.attach(backbone, {"a": "linear", "b": "linear"}, example=torch.randn(2, 6))
    x = torch.randn(9, 6)
    assert torch.equal(net(x)["final"], backbone(x))
    features = net.features(x)
    assert torch.equal(first(features[0]), backbone.a(x))
    for value in features[:-1]:
        assert all(tensor.shape[0] == 9 for tensor in value), "every tensor handed on has the batch axis"


def test_a_stage_holds_nothing_that_its_exit_does_not_need() -> None:
    net = MultiExit.attach(LongSkip(), {"a": "linear"}, example=torch.randn(2, 6))
    assert not any("side" in name for name, _ in net.stages[0].named_parameters())
    assert any("side" in name for name, _ in net.stages[1].named_parameters())


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return self.b(self.a(x))
        return self.b(x)


class Parallel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.unused = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(x) + self.b(self.b(x))


@pytest.mark.parametrize(
    ("backbone", "exits", "said"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), {"conv9": "auto"}, "no module 'conv9'; it has 0, 1"),
        (Branching(), {"a": "auto"}, "cannot be traced"),
        (Parallel(), {"unused": "auto"}, "is not called"),
        (Parallel(), {"b": "auto"}, "called 2 times"),
        (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), {}, "at least one module"),
        (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), {"0": "wide"}, "unknown head 'wide'"),
        (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), {"0": nn.Linear(4, 7)}, "behind '0' gives logits of shape"),
        (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), {"0": nn.Linear(5, 4)}, "a head fails"),
    ],
)
def test_what_cannot_be_cut_is_refused_and_named(backbone: nn.Module, exits: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        MultiExit.attach(backbone, exits, example=torch.ones(2, 4))


def test_exits_on_parallel_branches_are_refused() -> None:
    class Twins(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.a(x) + self.b(x)

    with pytest.raises(ModelError, match="one path"):
        MultiExit.attach(Twins(), {"a": "auto", "b": "auto"}, example=torch.ones(2, 4))


def test_auto_heads_look_at_wide_features_before_they_pool_them() -> None:
    wide, deep = make_head("auto", torch.zeros(1, 8, 16, 16), 10), make_head("auto", torch.zeros(1, 8, 8, 8), 10)
    assert isinstance(wide[0], nn.Conv2d)
    assert wide[0].groups == 8
    assert isinstance(deep[0], nn.AdaptiveAvgPool2d)  # type: ignore[index]
    assert make_head("auto", torch.zeros(2, 5, 8), 3)(torch.zeros(2, 5, 8)).shape == (2, 3)
    with pytest.raises(ModelError, match="no head for features"):
        make_head("auto", torch.zeros(2), 3)


def test_training_heads_leaves_the_last_exit_bit_identical(
    small_net: nn.Module, train_batches: ArrayBatches, test_batches: ArrayBatches
) -> None:
    net = exits_on(small_net)
    train_jointly(net, train_batches, TrainPlan(epochs=1, learning_rate=0.01))
    x = next(iter(test_batches))[0]
    before = net(x)
    state = {name: value.clone() for name, value in net.stages.state_dict().items()}
    report = train_heads(net, train_batches, TrainPlan(epochs=1, learning_rate=0.01))
    after = net(x)
    assert torch.equal(before["final"], after["final"])
    assert not torch.equal(before["exit_1"], after["exit_1"])
    assert all(torch.equal(value, state[name]) for name, value in net.stages.state_dict().items())
    assert not report.warnings


def test_joint_training_teaches_every_exit(
    small_net: nn.Module, train_batches: ArrayBatches, test_batches: ArrayBatches
) -> None:
    net = exits_on(small_net)
    report = train_jointly(net, train_batches, TrainPlan(epochs=6, learning_rate=0.01, schedule="one-cycle"))
    reached = accuracies(net, test_batches)
    assert report.epochs[-1].loss < report.epochs[0].loss
    assert reached[2] > 0.85, reached
    assert reached[0] > 0.5, reached


class Encoder(nn.Module):
    """A small transformer encoder over sequences of vectors."""

    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 16)
        self.layers = nn.Sequential(
            *(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True) for _ in range(layers))
        )
        self.head = make_head("linear", torch.zeros(1, 8, 16), 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embed(x)))


def test_a_transformer_encoder_gets_a_head_a_layer() -> None:
    torch.manual_seed(0)
    encoder, x = Encoder().eval(), torch.randn(4, 8, 8)
    net = MultiExit.attach(encoder, {"layers.0": "auto", "layers.1": "auto"}, example=x)
    with torch.no_grad():
        assert torch.equal(net(x)["final"], encoder(x))
    assert len(net.stages) == 3
    assert net.names == ("exit_1", "exit_2", "final")


class Silent(nn.Module):
    """A head whose error says nothing."""

    def __init__(self, error: type[Exception]) -> None:
        super().__init__()
        self.error = error

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise self.error


@pytest.mark.parametrize("error", [ValueError, RuntimeError, KeyError, AssertionError, ZeroDivisionError])
def test_a_head_that_fails_without_a_word_is_named_by_its_error(error: type[Exception]) -> None:
    backbone = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    with pytest.raises(ModelError, match=f"a head fails on the features it gets: {error.__name__}"):
        MultiExit.attach(backbone, {"0": Silent(error)}, example=torch.zeros(2, 4))


@pytest.mark.parametrize("error", [ValueError, LookupError])
def test_a_backbone_that_fails_without_a_word_is_named_by_its_error(error: type[Exception]) -> None:
    backbone = nn.Sequential(nn.Linear(4, 8), Silent(error), nn.Linear(8, 3))
    with pytest.raises(ModelError, match=f"the backbone fails on the example: {error.__name__}"):
        MultiExit.attach(backbone, {"0": "linear"}, example=torch.zeros(2, 4))
