"""Features inside a network, read through forward hooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ipj_edge_compress.errors import ModelError


class FeatureTap:
    """Remembers what named modules returned in the last forward pass."""

    def __init__(self, module: nn.Module, names: Sequence[str]) -> None:
        known = dict(module.named_modules())
        for name in names:
            if name not in known:
                raise ModelError(f"{type(module).__name__} has no module '{name}'")
        self._names = list(names)
        self._seen: dict[str, torch.Tensor] = {}
        self._hooks = [known[name].register_forward_hook(self._watch(name)) for name in names]

    def take(self) -> list[torch.Tensor]:
        """Return the features in the order of the names, and forget them.

        Raises:
            ModelError: a module did not run.
        """
        missing = [name for name in self._names if name not in self._seen]
        if missing:
            raise ModelError(f"the module '{missing[0]}' did not run")
        seen, self._seen = self._seen, {}
        return [seen[name] for name in self._names]

    def close(self) -> None:
        """Remove the hooks."""
        for hook in self._hooks:
            hook.remove()

    def _watch(self, name: str) -> Any:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            self._seen[name] = output[0] if isinstance(output, tuple) else output

        return hook
