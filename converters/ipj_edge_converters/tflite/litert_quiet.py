"""Keep litert-torch and ai-edge-quantizer quiet about what no user can act on; errors and other warnings pass."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout

# Loggers, and how the records begin that say nothing about the model being converted.
_NOISE = {
    "torchao": ("Failed to load",),
    "torchao.kernel.intmm": ("Warning: Detected no triton",),
    "torch.utils._pytree": ("<enum 'KernelPreference'>", "%s is an Enum subclass"),
}
# litert-torch's progress lines, the INFO lines of its C++ converter and that converter's note about oneDNN.
_ENVIRONMENT = {"LITERT_TORCH_SHOW_PROGRESS": "n", "TF_CPP_MIN_LOG_LEVEL": "1", "TF_ENABLE_ONEDNN_OPTS": "0"}


@contextmanager
def quiet_litert() -> Iterator[None]:
    """Run the block with nothing on stdout, and without the known noise of these packages on stderr."""
    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(sys.stderr))
        stack.enter_context(warnings.catch_warnings())
        _ignore_known_warnings()
        stack.enter_context(_environment(_ENVIRONMENT))
        for name, beginnings in _NOISE.items():
            stack.enter_context(_muted(logging.getLogger(name), beginnings))
        yield


def _ignore_known_warnings() -> None:
    # torch 2.13's export, as litert-torch 0.10 calls it, copies a tree spec that torch itself has deprecated.
    warnings.filterwarnings("ignore", message=".*isinstance\\(treespec, LeafSpec\\)", category=FutureWarning)
    # ai-edge-quantizer keeps all tensors on purpose while it calibrates.
    warnings.filterwarnings("ignore", message=".*experimental_preserve_all_tensors", category=UserWarning)


@contextmanager
def _environment(wanted: dict[str, str]) -> Iterator[None]:
    """Set variables that the user has not set, and take them away again."""
    added = [name for name in wanted if name not in os.environ]
    os.environ.update({name: wanted[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextmanager
def _muted(logger: logging.Logger, beginnings: tuple[str, ...]) -> Iterator[None]:
    def keep(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith(beginnings)

    logger.addFilter(keep)
    try:
        yield
    finally:
        logger.removeFilter(keep)
