"""Quantization-aware training: the grid, the ranges, and a float module that hides nothing."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from ipj_edge_compress import ArrayBatches, ModelError, MultiExit, TrainPlan, accuracy, train
from ipj_edge_compress.quantize.fake import OnGrid, RangePoint, integer_weights, weight_scales
from ipj_edge_compress.quantize.folding import folded
from ipj_edge_compress.quantize.training import grid_weights, hand_over, prepare, train_quantized

IMAGE = torch.rand(4, 1, 8, 8)


def test_weights_on_the_grid_give_their_scales_again() -> None:
    weight = torch.randn(6, 3, 3, 3)
    snapped = OnGrid()(weight)
    assert torch.equal(integer_weights(weight), integer_weights(snapped))
    assert torch.allclose(weight_scales(weight), weight_scales(snapped), rtol=1e-6)
    assert torch.equal(integer_weights(weight).abs().flatten(1).amax(1), torch.full((6,), 127.0))


def test_a_channel_of_zeros_stays_zero() -> None:
    weight = torch.randn(2, 4)
    weight[1] = 0
    assert torch.equal(OnGrid()(weight)[1], torch.zeros(4))


def test_the_gradient_passes_the_grid_unchanged() -> None:
    weight = torch.randn(2, 4, requires_grad=True)
    OnGrid()(weight).sum().backward()
    assert weight.grad is not None
    assert torch.equal(weight.grad, torch.ones(2, 4))


def ready_point(low: float, high: float) -> RangePoint:
    point = RangePoint()
    point(torch.tensor([low, high]))
    point.begin()
    return point


def test_rounding_is_that_of_the_engines() -> None:
    x = torch.linspace(-3, 5, 1001)
    point = ready_point(-1.0, 3.0)
    scale, zero = 4 / 255, round(1.0 / (4 / 255))
    want = (np.clip(np.round(np.clip(x.numpy(), -1, 3) / scale) + zero, 0, 255) - zero) * scale
    assert np.allclose(point(x).detach().numpy(), want, atol=1e-6)
    assert float(point(torch.zeros(1)).detach()) == 0.0


def test_values_cut_off_train_the_ends_and_no_others_do() -> None:
    point = ready_point(-1.0, 3.0)
    x = torch.tensor([-5.0, 0.5, 9.0], requires_grad=True)
    point(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 1.0, 0.0]
    assert point.grow_high.grad is not None
    assert float(point.grow_high.grad) == pytest.approx(3.0)
    assert point.grow_low.grad is not None
    assert float(point.grow_low.grad) == pytest.approx(-1.0)


def test_folding_changes_no_answer_and_leaves_the_module_alone(small_net: nn.Module) -> None:
    small_net.train()
    for _ in range(3):
        small_net(torch.rand(8, 1, 8, 8))
    small_net.eval()
    want, keys = small_net(IMAGE), set(small_net.state_dict())
    traced = folded(small_net)
    assert torch.allclose(traced(IMAGE), want, atol=1e-5)
    assert set(small_net.state_dict()) == keys
    assert not any(isinstance(one, nn.BatchNorm2d) for one in traced.modules())


def test_a_layer_that_is_called_twice_keeps_its_normalisation() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(1, 1, 3, padding=1), nn.BatchNorm2d(1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(self.conv(self.conv(x)))

    net = Twice().eval()
    net.norm.running_mean.fill_(0.3)
    assert torch.allclose(folded(net)(IMAGE), net(IMAGE), atol=1e-6)


def test_training_hands_over_a_float_module_on_the_grid(
    small_net: nn.Module, train_batches: ArrayBatches, test_batches: ArrayBatches
) -> None:
    train(small_net, train_batches, TrainPlan(epochs=5, learning_rate=0.01, schedule="one-cycle"))
    before = copy.deepcopy(small_net.state_dict())
    calibration = [next(iter(test_batches))[0]]
    made = train_quantized(small_net, train_batches, calibration, TrainPlan(epochs=1, learning_rate=1e-3))
    assert accuracy(made.module, test_batches) > accuracy(small_net, test_batches) - 0.03
    assert all(torch.equal(value, before[name]) for name, value in small_net.state_dict().items())
    for layer in made.module.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            integers = layer.weight.detach() / weight_scales(layer.weight).reshape(-1, *[1] * (layer.weight.ndim - 1))
            assert torch.allclose(integers, integers.round(), atol=1e-3)
            assert type(layer) in (nn.Conv2d, nn.Linear)
    assert not any(isinstance(one, RangePoint) for one in made.module.modules())
    names = [one.name for one in made.ranges]
    assert names[0] == "image"
    assert "linear" in names
    assert all(one.low <= 0 <= one.high for one in made.ranges)


def test_what_was_seen_belongs_to_the_module_handed_over(small_net: nn.Module, train_batches: ArrayBatches) -> None:
    made = train_quantized(small_net, train_batches, [IMAGE], TrainPlan(epochs=1, learning_rate=1e-3))
    with torch.no_grad():
        answer = made.module(IMAGE)
    last = made.ranges[-1]
    assert last.seen_low == pytest.approx(float(answer.min()), rel=1e-5)
    assert last.seen_high == pytest.approx(float(answer.max()), rel=1e-5)


def test_exits_are_trained_together_and_stay_stages(small_net: nn.Module, train_batches: ArrayBatches) -> None:
    net = MultiExit.attach(small_net, {"group1": "auto", "down": "linear"}, example=IMAGE)
    made = train_quantized(net, train_batches, [IMAGE], TrainPlan(epochs=1, learning_rate=1e-3))
    assert isinstance(made.module, MultiExit)
    assert list(made.module(IMAGE)) == ["exit_1", "exit_2", "final"]
    assert any(one.name.startswith("heads.0.") for one in made.ranges)
    assert sum("image" in one.name or ".x0" in one.name for one in made.ranges) == 1, "features are rounded once"


def test_the_module_handed_over_can_be_pickled(small_net: nn.Module) -> None:
    made = hand_over(prepare(small_net, [IMAGE]), [IMAGE])
    again = pickle.loads(pickle.dumps(made.module))
    with torch.no_grad():
        assert torch.equal(again(IMAGE), made.module(IMAGE))


def test_every_weight_of_the_network_is_on_a_grid(small_net: nn.Module) -> None:
    made = hand_over(prepare(small_net, [IMAGE]), [IMAGE])
    assert len(grid_weights(made.module)) == 7


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x) if x.sum() > 0 else x


def test_a_module_that_cannot_be_traced_is_named() -> None:
    with pytest.raises(ModelError, match="'Branching' cannot be traced"):
        prepare(Branching(), [IMAGE])
    with pytest.raises(ModelError, match="no convolution or linear layer"):
        prepare(nn.Sequential(nn.Flatten(), nn.ReLU()), [IMAGE])
    with pytest.raises(ModelError, match="needs calibration inputs"):
        prepare(nn.Linear(3, 3), [])
