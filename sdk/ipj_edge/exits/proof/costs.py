"""Expected cost of an inference: a stage is paid by the rows that reach it, its fixed part once for a whole batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ipj_edge.errors import ConfigError
from ipj_edge.exits.policy.values import CostUnit, StageCost, StageCosts
from ipj_edge.protocols import Array


def check_costs(costs: StageCosts, exits: int) -> None:
    """Check that there is one stage an exit and that every figure can be a cost.

    Raises:
        ConfigError: says which figure it is.
    """
    if len(costs.stages) != exits:
        raise ConfigError(f"{len(costs.stages)} stage costs for a model with {exits} exits")
    for index, stage in enumerate(costs.stages):
        values = np.array([stage.fixed, stage.per_row])
        if not (np.isfinite(values).all() and (values >= 0).all()):
            raise ConfigError(
                f"stage {index} costs {stage.fixed:g} {costs.unit} and {stage.per_row:g} {costs.unit} a row: "
                "expected finite figures, none below 0"
            )
    if not any(stage.fixed or stage.per_row for stage in costs.stages):
        raise ConfigError("no stage costs anything: there is nothing to save")


def stage_costs(unit: CostUnit, source: str, measured: Sequence[float], rows: int) -> StageCosts:
    """Return what each stage adds, from what whole inferences cost that leave at each exit.

    A batch of b rows is taken to cost fixed + b · per_row, at every depth. An exit that was measured no dearer than
    the one before it adds 0.

    Args:
        unit: Unit of the figures.
        source: Where the figures come from.
        measured: Inferences of one row, by depth, the unsplit program last; then the same of batches of ``rows`` rows,
            where ``rows`` is above 1.
        rows: Rows of the second half; 1 where only single rows were measured, which are then paid one by one.
    """
    sizes = np.array(measured, dtype=np.float64).reshape(1 if rows == 1 else 2, -1)
    added = np.diff(np.maximum.accumulate(sizes[:, :-1], axis=1), axis=1, prepend=0)
    one, many = np.column_stack([added, sizes[:, -1]])[[0, -1]]
    per_row = one if rows == 1 else np.clip((many - one) / (rows - 1), 0, one)
    *stages, unsplit = [
        StageCost(fixed=float(whole - row), per_row=float(row)) for whole, row in zip(one, per_row, strict=True)
    ]
    return StageCosts(unit=unit, source=source, stages=tuple(stages), unsplit=unsplit)


def expected_cost(costs: StageCosts, leavers: Array, batch: int = 1) -> float:
    """Return the mean cost of an inference when so many samples leave at each exit.

    A batch pays the fixed part of stage j when any of its rows reaches it: Σⱼ fixedⱼ·(1 − (1 − rⱼ)ᵇ)/b + per_rowⱼ·rⱼ,
    with rⱼ the share of rows that reach stage j, and rows of a batch independent of each other.

    Args:
        costs: The stage costs.
        leavers: Samples that leave at each exit, of shape (exits,).
        batch: Rows of a batch, b.
    """
    reach = reached(leavers)
    fixed, per_row = _columns(costs.stages)
    return float(fixed @ (1 - (1 - reach) ** batch) / batch + per_row @ reach)


def never_cost(costs: StageCosts, batch: int = 1) -> float:
    """Return the cost of an inference without early exit: of the unsplit program, else of all stages."""
    stages = costs.stages if costs.unsplit is None else (costs.unsplit,)
    fixed, per_row = _columns(stages)
    return float(fixed.sum() / batch + per_row.sum())


def cost_of_leaving(costs: StageCosts, reach: Array, batch: int = 1) -> Array:
    """Return what a sample costs that leaves at each exit, of shape (exits,), growing.

    For a batch the fixed part of a stage is shared among the rows expected in it, which makes the sum over samples
    equal to `expected_cost` at this reach.

    Args:
        costs: The stage costs.
        reach: Share of rows that reach each stage, of shape (exits,).
        batch: Rows of a batch.
    """
    fixed, per_row = _columns(costs.stages)
    present = np.maximum(reach, 1e-9)
    share = (1 - (1 - present) ** batch) / (batch * present)
    return np.cumsum(fixed * share + per_row)


def reached(leavers: Array) -> Array:
    """Return the share of rows that reach each stage, of shape (exits,), from the samples that leave at each exit."""
    counts = np.asarray(leavers, dtype=np.float64)
    shares: Array = counts[::-1].cumsum()[::-1] / counts.sum()
    return shares


def _columns(stages: tuple[StageCost, ...]) -> tuple[Array, Array]:
    return np.array([stage.fixed for stage in stages]), np.array([stage.per_row for stage in stages])
