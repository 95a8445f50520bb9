"""What goes wrong before conversion: training that cannot go on, a goal that cannot be reached."""

from __future__ import annotations

from ipj_edge.errors import IpjEdgeError


class TrainingError(IpjEdgeError):
    """Training cannot go on; the message names the cause.

    Attributes:
        layer: Module at which it was first seen; empty where no module is to blame.
    """

    def __init__(self, message: str, layer: str = "") -> None:
        self.layer = layer
        super().__init__(message)


class ModelError(IpjEdgeError):
    """A module that cannot be cut, traced or pruned; the message names the part of it."""

    exit_code = 3


class GoalError(IpjEdgeError):
    """A goal was not reached; the message holds the best that was found and the reason."""

    exit_code = 5
