"""Networks with several exits: stages that run one after another, each with a head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ipj_edge.errors import first_line
from ipj_edge_compress.errors import ModelError
from ipj_edge_compress.exits.backbone_cuts import cut
from ipj_edge_compress.exits.heads import make_head
from ipj_edge_compress.training.modes import evaluating

FINAL = "final"


class MultiExit(nn.Module):
    """A staged module: stage k takes what stage k−1 returned, head k turns the first of it into logits.

    ``forward`` returns the logits of all exits by name, in order: ``exit_1`` … ``final``.

    Attributes:
        stages: Modules; each returns a tensor, or a tuple whose first member its head takes.
        heads: As many modules; the last belongs to the full model.
    """

    def __init__(self, stages: Sequence[nn.Module], heads: Sequence[nn.Module]) -> None:
        super().__init__()
        if len(stages) != len(heads) or len(stages) < 2:
            raise ModelError(
                f"a model with exits needs at least two stages and as many heads, got {len(stages)}, {len(heads)}"
            )
        self.stages, self.heads = nn.ModuleList(stages), nn.ModuleList(heads)

    @classmethod
    def attach(
        cls,
        backbone: nn.Module,
        exits: Mapping[str, str | nn.Module],
        *,
        example: torch.Tensor | Sequence[torch.Tensor],
        classes: int | None = None,
    ) -> MultiExit:
        """Cut a backbone behind named modules and add a head to each cut.

        The backbone's modules are shared, not copied; its own output stays the last exit, bit for bit.

        Args:
            backbone: An ``nn.Sequential``, or a module whose ``forward`` torch.fx can trace down to the modules named.
            exits: By module name: ``auto``, ``linear`` or ``depthwise`` (see `make_head`), or a head of your own.
            example: Example inputs.
            classes: Number of logits of the heads; default: as the backbone has.

        Raises:
            ModelError: a module that is not there or cannot be cut at, or heads that do not fit.
        """
        inputs = (example,) if isinstance(example, torch.Tensor) else tuple(example)
        if not exits:
            raise ModelError("name at least one module to exit behind, e.g. exits={'layer1': 'auto'}")
        stages, names = cut(backbone, list(exits), inputs)
        features = _features(stages, inputs)
        logits = features[-1]
        if logits.ndim != 2 and classes is None:
            raise ModelError(f"the backbone returns {tuple(logits.shape)}, no logits (n, classes): say classes=")
        count = logits.shape[-1] if classes is None else classes
        heads = [_head(exits[name], value, count) for name, value in zip(names, features, strict=False)]
        made = cls(stages, [*heads, nn.Identity()])
        _check_heads(made, inputs, names)
        made.training = backbone.training
        return made

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the exits in order: ``exit_1`` … ``final``."""
        return (*(f"exit_{index}" for index in range(1, len(self.stages))), FINAL)

    def features(self, *inputs: torch.Tensor) -> list[Any]:
        """Return what each stage returns, in order."""
        found: list[Any] = []
        value: Any = inputs
        for stage in self.stages:
            value = stage(*(value if isinstance(value, tuple) else (value,)))
            found.append(value)
        return found

    def forward(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the logits of every exit by name, in order."""
        found = self.features(*inputs)
        return {name: head(first(value)) for name, head, value in zip(self.names, self.heads, found, strict=True)}


def first(value: Any) -> torch.Tensor:
    """Return the tensor that a head takes from what a stage returned."""
    return value[0] if isinstance(value, tuple) else value


def _features(stages: Sequence[nn.Module], inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    value: Any = inputs
    found = []
    with evaluating(*stages):
        for stage in stages:
            value = stage(*(value if isinstance(value, tuple) else (value,)))
            found.append(first(value))
    return found


def _head(wanted: str | nn.Module, features: torch.Tensor, classes: int) -> nn.Module:
    return wanted if isinstance(wanted, nn.Module) else make_head(wanted, features, classes)


def _check_heads(module: MultiExit, inputs: tuple[torch.Tensor, ...], names: Sequence[str]) -> None:
    """Run once and refuse heads whose logits differ in shape from the last exit's."""
    try:
        with evaluating(module):
            answers = module(*inputs)
    except Exception as error:  # a head may be the user's own
        raise ModelError(f"a head fails on the features it gets: {first_line(error)}") from error
    wanted = tuple(answers[FINAL].shape)
    for exit_name, name in zip(module.names, names, strict=False):
        got = tuple(answers[exit_name].shape)
        if got != wanted:
            raise ModelError(f"the head behind '{name}' gives logits of shape {got}; the last exit gives {wanted}")
