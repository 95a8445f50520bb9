"""Training and evaluation mode of modules, put back as they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluating(*modules: nn.Module) -> Iterator[None]:
    """Put modules into evaluation mode without gradients; afterwards every module inside has its own mode again."""
    modes = {inner: inner.training for module in modules for inner in module.modules()}
    for module in modules:
        module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for inner, mode in modes.items():
            inner.training = mode
