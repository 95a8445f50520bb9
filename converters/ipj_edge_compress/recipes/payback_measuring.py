"""Joules per inference before and after a compression, on a target, with the core's own conversion and bench."""

from __future__ import annotations

import shutil
from pathlib import Path

from ipj_edge.benchmark import bench
from ipj_edge.benchmark.run.runner import BenchOptions
from ipj_edge.conversion import ConvertRequest, convert
from ipj_edge.values import EnergyPerInference, Precision, Reading
from ipj_edge_compress.cost.payback import Payback, payback
from ipj_edge_compress.recipes.delivery import CALIBRATION
from ipj_edge_compress.recipes.recipe import PaybackTable, QatStep, Recipe
from ipj_edge_compress.recipes.run_folder import RunFolder


def measured_payback(recipe: Recipe, spent: Reading, before: Path, after: Path, folder: RunFolder) -> Payback:
    """Convert both models for the recipe's target, measure them, and return the payback point.

    The model after is converted to int8 where it was trained for it.

    Args:
        recipe: A recipe with a payback table.
        spent: Energy of the compression.
        before: Program of the model before.
        after: Program of the model after.
        folder: Folder of the run.

    Raises:
        IpjEdgeError: a conversion failed.
    """
    table = recipe.payback
    assert table is not None
    precision: Precision = "int8" if isinstance(recipe.step[-1], QatStep) else "fp32"
    bundles = [
        _bundle(str(before), "fp32", "before", table, folder),
        _bundle(str(folder.root) if precision == "int8" else str(after), precision, "after", table, folder),
    ]
    options = BenchOptions(probe=recipe.probe, windows=table.windows, window_s=table.window_s)
    was, now = (_energy(bundle, options) for bundle in bundles)
    return payback(spent, was, now)


def _bundle(source: str, precision: Precision, name: str, table: PaybackTable, folder: RunFolder) -> Path:
    into = folder.state / "payback"
    shutil.rmtree(into / f"{name}.{table.target}.{precision}.ipj", ignore_errors=True)
    calibration = str(folder.root / CALIBRATION)
    (outcome,) = convert(
        ConvertRequest(
            source=source,
            targets=(table.target,),
            precisions=(precision,),
            into=into,
            name=name,
            calibration=calibration,
        )
    )
    if outcome.error is not None:
        raise outcome.error
    assert outcome.bundle is not None
    return outcome.bundle.path


def _energy(bundle: Path, options: BenchOptions) -> EnergyPerInference:
    return bench([bundle], options).results[0].joules_per_inference
