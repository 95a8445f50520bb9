"""Counting never ends a conversion."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

from ipj_edge_converters.torch.macs import count_torch


class Watchful(nn.Module):
    """Runs, but not under a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if _get_current_dispatch_mode() is not None:
            raise KeyError("seen")
        return self.layer(x)


def test_a_module_that_fails_under_the_counter_has_a_reason_in_place_of_a_count():
    counted = count_torch(Watchful(), [torch.zeros(1, 3)], samples=1)
    assert counted.macs is None
    assert "torch's counter failed: KeyError" in counted.reason
    assert counted.parameters == 8
