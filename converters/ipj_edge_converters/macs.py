"""Multiply-accumulates of one sample and number of weights; what cannot be counted has a reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipj_edge.plugins import needs
from ipj_edge.protocols import MacCount


def count_torch(module: Any, tensors: Sequence[Any], *, samples: int) -> MacCount:
    """Count a torch module with torch's own FLOP counter: one multiply-accumulate is two FLOPs.

    Args:
        module: A module that takes these tensors by position.
        tensors: Example inputs.
        samples: Samples they hold.
    """
    with needs("convert"):
        import torch
        from torch.utils.flop_counter import FlopCounterMode
    parameters = sum(parameter.numel() for parameter in module.parameters())
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        module(*tensors)
    return MacCount(macs=counter.get_total_flops() // (2 * samples), parameters=parameters)
