"""What a module costs: multiply-accumulates, parameters, bytes, seconds."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from time import perf_counter
from typing import Any

import msgspec
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from ipj_edge_compress.training.batches import as_inputs
from ipj_edge_compress.training.modes import evaluating


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Size of a module: multiply-accumulates of one sample, number of parameters, bytes of parameters and buffers."""

    macs: int
    parameters: int
    bytes: int


def size_of(module: nn.Module, example: Any) -> Size:
    """Measure a module; multiply-accumulates are half of what torch's FLOP counter counts.

    Args:
        module: Any module.
        example: Example inputs with a batch axis.
    """
    inputs = as_inputs(example)
    counter = FlopCounterMode(display=False)
    with evaluating(module), counter:
        module(*inputs)
    tensors = [*module.parameters(), *module.buffers()]
    return Size(
        macs=counter.get_total_flops() // (2 * len(inputs[0])),
        parameters=sum(one.numel() for one in module.parameters()),
        bytes=sum(one.numel() * one.element_size() for one in tensors),
    )


def seconds_of(modules: Sequence[nn.Module], example: Any, *, rounds: int = 15, least_s: float = 0.002) -> list[float]:
    """Time modules on the same inputs, on one thread, taking turns; return the median seconds of a call of each.

    Taking turns lets a busy machine slow all of them alike: their ratios hold, the seconds themselves may not.

    Args:
        modules: The modules to compare.
        example: Example inputs.
        rounds: Turns.
        least_s: Calls are repeated within a turn until they take this long.
    """
    inputs = as_inputs(example)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with evaluating(*modules), torch.inference_mode():
            counts = [max(1, round(least_s / _timed(module, inputs, 2))) for module in modules]
            turns = [
                [_timed(module, inputs, count) for module, count in zip(modules, counts, strict=True)]
                for _ in range(rounds)
            ]
    finally:
        torch.set_num_threads(threads)
    return [median(times) for times in zip(*turns, strict=True)]


def _timed(module: nn.Module, inputs: tuple[Any, ...], count: int) -> float:
    start = perf_counter()
    for _ in range(count):
        module(*inputs)
    return max((perf_counter() - start) / count, 1e-9)
