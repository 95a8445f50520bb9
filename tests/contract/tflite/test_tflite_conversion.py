from __future__ import annotations

import pytest
import torch
from torch import nn


@pytest.fixture
def conv_net(net_source, spec):
    """A convolution, a batch norm with real statistics and a linear layer; H, W and C differ."""
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(8)
    norm.running_mean.uniform_(-1, 1)
    norm.running_var.uniform_(0.5, 2)
    return net_source(
        lambda conv, norm, line, x: (line(torch.relu(norm(conv(x))).flatten(1)),),
        nn.Conv2d(3, 8, 3, padding=1),
        norm,
        nn.Linear(8 * 5 * 7, 4),
        inputs=(spec("image", 3, 5, 7),),
        outputs=("logits",),
    )


def test_a_convolution_net_answers_as_torch_does_in_fp32(converted, conv_net, samples):
    assert converted(conv_net).relative_l2(samples(conv_net, 8))["logits"] < 1e-4


def test_a_convolution_net_answers_as_torch_does_in_int8(converted, conv_net, samples):
    made = converted(conv_net, "int8", samples(conv_net, 50))
    assert made.relative_l2(samples(conv_net, 20, seed=2))["logits"] < 0.05
    assert [port.dtype for port in (*made.files.takes, *made.files.adds)] == ["int8", "int8"]
    assert made.files.operators.float_operators == ()
