"""The ledger of a compression: what each step cost and what it made of the model."""

from __future__ import annotations

from typing import Any

import msgspec

from ipj_edge.values import Reading
from ipj_edge_compress.cost.payback import Payback
from ipj_edge_compress.cost.size import Size

REPORT_VERSION = 1


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A model as it stands: accuracy of each exit on the validation data, the deepest last, and its size."""

    accuracy: tuple[float, ...]
    size: Size


class StepEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One step.

    Attributes:
        do: What was done.
        before: The model before.
        after: The model after.
        energy: Energy of the step.
        accuracy_per_joule: Accuracy of the deepest exit after the step over its joules; None without joules.
        details: What the step itself reports.
        warnings: What the user should know.
    """

    do: str
    before: Standing
    after: Standing
    energy: Reading
    accuracy_per_joule: float | None
    details: dict[str, Any]
    warnings: tuple[str, ...] = ()


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the goal was reached: accuracy it is held against, drop allowed and seen, and why it was missed."""

    reference: float
    allowed_drop: float
    drop: float
    met: bool
    reason: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a recipe; written to ``report.json``.

    Attributes:
        version: Version of this form.
        created_with: ipj-edge and the tools that took part, by distribution name.
        steps: The steps in order.
        energy: Energy of the whole run, exports included.
        accuracy_per_joule: Intelligence per joule of training: accuracy reached (0..1) over all joules spent.
        goal: The goal; None without one.
        payback: Payback point on the target; None where the recipe asks for none.
        files: What was written, relative to the folder.
    """

    version: int
    created_with: dict[str, str]
    steps: tuple[StepEntry, ...]
    energy: Reading
    accuracy_per_joule: float | None
    goal: Goal | None
    payback: Payback | None
    files: tuple[str, ...]


def per_joule(accuracy: float, energy: Reading) -> float | None:
    """Return accuracy reached for each joule spent; None without joules."""
    return accuracy / energy.joules if energy.joules else None
