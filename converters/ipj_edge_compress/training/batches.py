"""Batches: what training functions take, made from arrays and checked against what a model can use."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

from ipj_edge.errors import DataError
from ipj_edge.protocols import Array

# (inputs, targets); inputs are a tensor or a tuple of tensors.
TrainingBatch = tuple[Any, torch.Tensor]
Batches = Iterable[TrainingBatch]


class ArrayBatches:
    """Batches cut from arrays, in an order that depends on the seed and the epoch alone.

    Attributes:
        epoch: Set it before each pass; the order of epoch k is always the same.
    """

    def __init__(
        self, inputs: Array | torch.Tensor, targets: Array | torch.Tensor, *, size: int, seed: int | None = None
    ) -> None:
        """Hold the arrays.

        Args:
            inputs: First axis = samples.
            targets: Labels (n,), or anything whose first axis = samples.
            size: Samples a batch; the last may be smaller.
            seed: Shuffle with this seed; None keeps the order.
        """
        self._inputs, self._targets = torch.as_tensor(inputs), torch.as_tensor(targets)
        if len(self._inputs) != len(self._targets) or not len(self._inputs) or size < 1:
            raise DataError(
                f"{len(self._inputs)} inputs, {len(self._targets)} targets, batches of {size}: "
                "expected as many targets as inputs, at least one, and a size of at least 1"
            )
        self._size, self._seed, self.epoch = size, seed, 0

    def __len__(self) -> int:
        return math.ceil(len(self._inputs) / self._size)

    def __iter__(self) -> Iterator[TrainingBatch]:
        count = len(self._inputs)
        order = torch.arange(count) if self._seed is None else torch.from_numpy(self._order(self._seed, count))
        for rows in order.split(self._size):
            yield self._inputs[rows], self._targets[rows]

    def _order(self, seed: int, count: int) -> Array:
        return np.random.default_rng([seed, self.epoch]).permutation(count)


def as_inputs(inputs: Any) -> tuple[Any, ...]:
    """Return the inputs of a batch as a tuple."""
    return tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)


def samples_of(batch: TrainingBatch) -> int:
    """Return the number of samples in a batch."""
    return len(batch[1])


def check_batch(batch: Any, number: int) -> TrainingBatch:
    """Refuse a batch that training would choke on.

    Raises:
        DataError: not a pair, NaN or infinity, inputs and targets of different length, no sample.
    """
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise DataError(f"batch {number} is a {type(batch).__name__}; expected a pair (inputs, targets)")
    inputs, targets = batch
    for tensor in (*as_inputs(inputs), targets):
        if not isinstance(tensor, torch.Tensor):
            raise DataError(f"batch {number} holds a {type(tensor).__name__}; expected torch tensors")
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise DataError(f"batch {number} holds NaN or infinity: clean the data first")
    lengths = {len(tensor) for tensor in (*as_inputs(inputs), targets)}
    if len(lengths) != 1 or 0 in lengths:
        raise DataError(f"batch {number}: inputs and targets have {sorted(lengths)} samples; expected as many, above 0")
    return inputs, targets


def check_labels(labels: torch.Tensor, classes: int) -> None:
    """Refuse labels that are no class of the model.

    Raises:
        DataError: names the smallest and largest label and the classes.
    """
    if labels.is_floating_point() or labels.ndim != 1:
        return  # targets of a regression, or soft labels
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise DataError(f"labels run from {low} to {high}, the model has classes 0 to {classes - 1}")


def to_device(batch: TrainingBatch, device: torch.device) -> tuple[tuple[Any, ...], torch.Tensor]:
    """Return the inputs, as a tuple, and the targets of a batch on a device."""
    inputs, targets = batch
    return tuple(tensor.to(device) for tensor in as_inputs(inputs)), targets.to(device)
