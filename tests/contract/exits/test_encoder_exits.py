"""A transformer encoder that can answer after every layer, on every engine at both precisions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ipj_edge
from ipj_edge.bundles.bundle import open_bundle
from ipj_edge.exits import ExitPolicy

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
TARGETS = ("openvino-cpu", "onnxruntime-cpu", "tflite-cpu")
BUNDLES = [f"encoder.{target}.{precision}.ipj" for target in TARGETS for precision in ("fp32", "int8")]


@pytest.fixture(scope="module")
def steps() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((64, 9, 6)).astype(np.float32)


@pytest.fixture(scope="module")
def encoders(steps: np.ndarray, tmp_path_factory: pytest.TempPathFactory, ipj_edge_cli: Callable) -> Path:
    folder = tmp_path_factory.mktemp("encoders")
    np.savez(folder / "cal.npz", steps=steps)
    ran = ipj_edge_cli(
        "convert", f"{HERE / 'staged_encoder.py'}:build", "--input", "steps:1x9x6", "--name", "encoder",
        "--precision", "fp32", "--precision", "int8", "--calibration", folder / "cal.npz", "-o", folder,
        *(part for target in TARGETS for part in ("--target", target)),
    )  # fmt: skip
    assert ran.code == 0, ran
    return folder


@pytest.mark.parametrize("name", BUNDLES)
def test_layers_are_stages_that_equal_the_unsplit_encoder(encoders: Path, steps: np.ndarray, name: str) -> None:
    assert [stage.exit_output for stage in open_bundle(encoders / name).manifest.stages] == [
        "exit_1",
        "exit_2",
        "final",
    ]
    with (
        ipj_edge.load(encoders / name, exits="all", threads=1) as staged,
        ipj_edge.load(encoders / name, exits="off", threads=1) as whole,
    ):
        chained, answered = staged.run(steps).outputs["final"], whole.run(steps).outputs["final"]
        early = staged.run(steps[:1], max_exit=0)
    # float32 attention is computed in other blocks where a program ends sooner: equal but for the last bits
    np.testing.assert_allclose(chained, answered, rtol=0, atol=2e-6 * np.abs(answered).max() if "fp32" in name else 0)
    assert early.exit_index == 0
    assert not np.array_equal(early.outputs["final"], answered[:1])


def test_sequences_leave_after_the_layer_that_is_sure(encoders: Path, steps: np.ndarray) -> None:
    policy = ExitPolicy(rule="margin", thresholds=(0.2, 0.2))
    # The answers are not declared to be logits, so no rule of classes can judge them.
    with pytest.raises(ipj_edge.errors.ConfigError, match="convert again with --labels"):
        ipj_edge.load(encoders / BUNDLES[0], exits=policy)
    change = ExitPolicy(rule="change", thresholds=(0.0, 0.0))
    with ipj_edge.load(encoders / BUNDLES[0], exits=change, threads=1) as model:
        together = model.run(steps)
        alone = [model.run(one).exit_index for one in steps]
    assert together.exit_indices.tolist() == alone
