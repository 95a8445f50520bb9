"""What the report needs of the JSON that ``ipj-edge exits tune --json`` writes."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ipj_edge.errors import DataError
from ipj_edge.values import Interval


class StageCost(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of a stage: fixed once a batch, per_row for every sample."""

    fixed: float
    per_row: float


class StageCosts(msgspec.Struct, frozen=True, kw_only=True):
    """Costs of all stages in one unit (J, s or MAC) and where they come from."""

    unit: str
    source: str
    stages: tuple[StageCost, ...] = ()


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy does: mean cost, risk, accuracy where known, and how many left at each exit."""

    cost: float
    risk: float
    accuracy: Interval | None = None
    leavers: tuple[int, ...] = ()


class FrontPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One point of the front."""

    expected: Expectation


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """What is proven: method ``none`` proves nothing."""

    method: str
    reason: str = ""
    loss: str = ""
    epsilon: float = 0.0
    delta: float = 0.0


class Tuned(msgspec.Struct, frozen=True, kw_only=True):
    """A tuning of early exits.

    Attributes:
        name: File name of the bundle, or of the JSON.
    """

    name: str = ""
    costs: StageCosts
    certificate: Certificate
    expected: Expectation
    never: Expectation
    front: tuple[FrontPoint, ...] = ()


def read_tuned(path: Path) -> Tuned:
    """Read a tuning; fields the report does not show are passed over.

    Raises:
        DataError: no such content.
    """
    try:
        tuned = msgspec.json.decode(path.read_bytes(), type=Tuned)
    except (OSError, msgspec.DecodeError) as error:
        raise DataError(
            f"{path} is neither a result of `ipj-edge bench --json` nor of `ipj-edge exits tune --json`: {error}"
        ) from error
    return tuned if tuned.name else msgspec.structs.replace(tuned, name=path.stem)


def is_tuned(path: Path) -> bool:
    """Say whether a file looks like a tuning and not like a result."""
    try:
        content = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return False
    return isinstance(content, dict) and "results" not in content and "certificate" in content
