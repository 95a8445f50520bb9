"""Low rank: the function is kept where it has low rank, and a layer only where it gets faster."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ipj_edge.errors import ConfigError
from ipj_edge_compress import LowRankPlan, factorise
from ipj_edge_compress.lowrank.factorise import split
from ipj_edge_compress.lowrank.layer_inputs import input_roots

Seconds = tuple[float, float]


def always_faster(_layer: nn.Module, _pair: nn.Module, _given: torch.Tensor) -> Seconds:
    return 2.0, 1.0


def never_faster(_layer: nn.Module, _pair: nn.Module, _given: torch.Tensor) -> Seconds:
    return 1.0, 1.0


def low_rank_linear(size: int, rank: int) -> nn.Linear:
    layer = nn.Linear(size, size)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(size, rank) @ torch.randn(rank, size) / size)
    return layer


@pytest.mark.parametrize(
    ("layer", "given"),
    [
        (nn.Linear(12, 7), torch.randn(3, 12)),
        (nn.Linear(12, 7, bias=False), torch.randn(3, 5, 12)),
        (nn.Conv2d(4, 6, 3, stride=2, padding=1, dilation=2), torch.randn(2, 4, 9, 11)),
        (nn.Conv2d(4, 6, (1, 3), padding="same", padding_mode="circular"), torch.randn(2, 4, 9, 11)),
    ],
)
def test_at_full_rank_the_pair_is_the_layer(layer: nn.Module, given: torch.Tensor) -> None:
    pair = split(layer, min(layer.weight.flatten(1).shape))
    assert torch.allclose(pair(given), layer(given), atol=1e-5)


def test_a_layer_of_low_rank_loses_nothing() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(low_rank_linear(64, 4), nn.ReLU(), nn.Linear(64, 3))
    x = torch.randn(5, 64)
    want = net(x).detach()
    report = factorise(net, x, LowRankPlan(energy=0.999999, without=("2",)), clock=always_faster)
    assert report.layers["0"].rank <= 4
    assert report.layers["0"].kept
    assert torch.allclose(net(x), want, atol=1e-2 * float(want.abs().max()))
    assert report.after.macs < report.before.macs


def test_a_layer_that_gets_no_faster_stays() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(low_rank_linear(64, 4))
    report = factorise(net, torch.randn(5, 64), clock=never_faster)
    assert not report.layers["0"].kept
    assert report.layers["0"].reason == "its measured time does not fall"
    assert isinstance(net[0], nn.Linear)
    assert report.after == report.before


def test_a_rank_that_saves_nothing_is_not_even_timed() -> None:
    net = nn.Sequential(nn.Linear(8, 8))
    with torch.no_grad():
        net[0].weight.copy_(torch.eye(8))
    report = factorise(net, torch.randn(5, 8), clock=always_faster)
    assert report.layers["0"].time_ratio is None
    assert "as many multiply-accumulates" in report.layers["0"].reason


def test_a_budget_finds_the_energy_that_gives_it() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Linear(64, 64) for _ in range(3)))
    report = factorise(net, torch.randn(5, 64), LowRankPlan(energy=0.2, target_macs=0.7), clock=always_faster)
    assert report.after.macs <= 0.7 * report.before.macs
    assert report.energy > 0.2


def test_a_real_measurement_keeps_a_large_layer_of_low_rank() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(low_rank_linear(1024, 4))
    report = factorise(net, torch.randn(1, 1024), LowRankPlan(energy=0.99))
    ratio = report.layers["0"].time_ratio
    assert ratio is not None
    assert report.layers["0"].kept == (ratio <= 0.98)


def test_layers_that_their_module_looks_into_are_put_back() -> None:
    torch.manual_seed(0)
    encoder = nn.TransformerEncoderLayer(16, 2, 64, dropout=0.0, batch_first=True).eval()
    with torch.no_grad():
        encoder.linear1.weight.copy_(torch.randn(64, 1) @ torch.randn(1, 16))
    x = torch.randn(2, 5, 16)
    report = factorise(encoder, x, LowRankPlan(energy=0.9), clock=always_faster)
    assert encoder(x).shape == x.shape
    assert "linear1" not in report.layers or report.layers["linear1"].kept == isinstance(encoder.linear1, nn.Sequential)
    assert "self_attn.out_proj" not in report.layers


def test_modules_left_alone_stay(small_net: nn.Module) -> None:
    report = factorise(
        small_net, torch.rand(2, 1, 8, 8), LowRankPlan(energy=0.5, without=("group1",)), clock=always_faster
    )
    assert not any(name.startswith("group1") for name in report.layers)
    assert any(one.kept for one in report.layers.values())


def test_shares_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigError, match="energy"):
        LowRankPlan(energy=1.0)


@pytest.mark.parametrize(
    ("layer", "x"),
    [
        (nn.Linear(20, 12), torch.randn(300, 6) @ torch.randn(6, 20)),
        (nn.Conv2d(4, 12, 3, padding=1, stride=2), torch.randn(40, 2, 9, 9).repeat_interleave(2, 1)),
        (nn.Conv2d(4, 12, (3, 5), padding="same", padding_mode="reflect"), torch.randn(40, 4, 9, 9).cumsum(2)),
    ],
)
def test_the_error_is_least_where_the_inputs_are(layer: nn.Module, x: torch.Tensor) -> None:
    root = input_roots(nn.Sequential(layer), {"0": layer}, [(x, torch.zeros(len(x)))])["0"]
    with torch.no_grad():
        wanted = layer(x)
        for rank in (2, 5, 8):
            by_weights, by_inputs = (torch.square(split(layer, rank, one)(x) - wanted).mean() for one in (None, root))
            assert by_inputs < 0.97 * by_weights


def test_inputs_of_few_directions_let_a_layer_of_full_rank_shrink() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
    x = torch.randn(400, 4) @ torch.randn(4, 64)
    before = net(x)
    report = factorise(net, x[:1], LowRankPlan(energy=0.9999), batches=[(x, torch.zeros(400))], clock=always_faster)
    assert report.layers["0"].kept
    assert report.layers["0"].rank <= 4
    assert torch.allclose(net(x), before, atol=0.1)
