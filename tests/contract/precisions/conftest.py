"""Conversions of small networks through the whole pipeline, the trial in a child process included."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ipj_edge.bundles.manifest import Manifest
from ipj_edge.conversion import ConvertRequest, Outcome, convert
from ipj_edge.conversion.plan.request import take_options
from ipj_edge.values import TensorSpec

NETWORKS = Path(__file__).with_name("networks.py")

INPUTS = {
    "encoder": (TensorSpec(name="ids", shape=(1, 12), dtype="int64", value_range=(0, 499)),),
    "lstm": (TensorSpec(name="x", shape=(1, 9, 12), dtype="float32"),),
    "gru": (TensorSpec(name="x", shape=(1, 9, 12), dtype="float32"),),
    "conv": (TensorSpec(name="image", shape=(1, 3, 6, 7), dtype="float32"),),
    "streaming": (
        TensorSpec(name="x", shape=(1, 4, 6), dtype="float32"),
        TensorSpec(name="state", shape=(2, 1, 5), dtype="float32"),
    ),
    "two": (
        TensorSpec(name="left", shape=(1, 5), dtype="float32"),
        TensorSpec(name="right", shape=(1, 5), dtype="float32"),
        TensorSpec(name="gain", shape=(), dtype="float32", batch_axis=None),
    ),
}


class Conversion:
    """What came of converting for one target and precision."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome, self.error = outcome, outcome.error

    @property
    def manifest(self) -> Manifest:
        assert self.outcome.bundle is not None, self.error
        return self.outcome.bundle.manifest

    @property
    def path(self) -> Path:
        assert self.outcome.bundle is not None, self.error
        return self.outcome.bundle.path

    @property
    def floats(self) -> tuple[str, ...]:
        return self.manifest.stages[0].operators.float_operators

    @property
    def exit_code(self) -> int:
        return 0 if self.error is None else self.error.exit_code


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Calibration data for the conv network: smooth, asymmetric, of other sizes along every axis."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("calibration") / "images.npz"
    np.savez(path, image=rng.random((96, 3, 6, 7), dtype=np.float32) ** 2)
    return path


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Conversion]:
    """Convert a network, or a model file, for one target."""

    def run(source: str | Path, target: str, precision: str | None = None, **options: Any) -> Conversion:
        known = isinstance(source, str) and source in INPUTS
        options.setdefault("inputs", INPUTS[str(source)] if known else ())
        request = ConvertRequest(
            source=f"{NETWORKS}:{source}" if known else str(source),
            targets=(target,),
            into=tmp_path / "dist",
            precisions=() if precision is None else (precision,),
            options=take_options(options),
            **options,
        )
        (outcome,) = convert(request)
        return Conversion(outcome)

    return run
