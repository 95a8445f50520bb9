"""onnxruntime on a real NVIDIA GPU: it runs there, says so, and answers as its source does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ipj_edge
from ipj_edge.bundles.bundle import open_bundle
from ipj_edge.conversion import ConvertRequest, convert
from ipj_edge.runtime.golden import read_golden
from ipj_edge.runtime.verification import verify
from ipj_edge.values import ConversionOptions, Settings, TensorSpec
from ipj_edge_targets.onnxruntime_gpu import OnnxruntimeGpu

pytestmark = [pytest.mark.hardware, pytest.mark.slow]

NETWORKS = Path(__file__).parent.parent / "contract" / "precisions" / "networks.py"
CUDA = "CUDAExecutionProvider"


@pytest.fixture(scope="module", autouse=True)
def gpu() -> None:
    found = OnnxruntimeGpu().availability()
    if not found.available:
        pytest.skip(f"onnxruntime-gpu cannot be used here: {found.reason}")


@pytest.fixture(scope="module")
def calibration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("calibration") / "images.npz"
    np.savez(path, image=np.random.default_rng(0).random((96, 3, 6, 7), dtype=np.float32) ** 2)
    return path


@pytest.fixture(params=["fp32", "fp16", "int8"])
def bundle(request: pytest.FixtureRequest, tmp_path: Path, calibration: Path) -> Path:
    (outcome,) = convert(
        ConvertRequest(
            source=f"{NETWORKS}:conv",
            targets=("onnxruntime-gpu",),
            into=tmp_path,
            precisions=(request.param,),
            inputs=(TensorSpec(name="image", shape=(1, 3, 6, 7), dtype="float32"),),
            calibration=str(calibration),
            # int8 runs on TensorRT by default, which is a further installation.
            options=ConversionOptions(providers=("cuda",)),
        )
    )
    assert outcome.bundle is not None, outcome.error
    return outcome.bundle.path


def test_a_bundle_is_proven_on_the_gpu_itself(bundle):
    assert open_bundle(bundle).manifest.parity.verified_on == "target"
    (effective,) = verify(bundle).effective
    assert effective.providers[0] == CUDA
    assert effective.engine == "onnxruntime-gpu"


def test_answers_follow_the_inputs_from_call_to_call(bundle):
    """Memory bound once would answer for the first input for ever."""
    inputs, wanted = read_golden(bundle)
    with ipj_edge.load(bundle) as model:
        for row in range(4):
            part = {name: value[row : row + 1] for name, value in inputs.items()}
            answers = model.run(part).outputs
            for name, value in answers.items():
                np.testing.assert_allclose(value, wanted[name][row : row + 1], rtol=0.1, atol=0.02)


def test_batches_and_clones_run(bundle):
    inputs, _ = read_golden(bundle)
    with ipj_edge.load(bundle) as model, model.clone() as other:
        for name, value in model.run(inputs).outputs.items():
            np.testing.assert_allclose(value, other.run(inputs).outputs[name])


def test_effective_settings_are_the_requested_ones(bundle):
    (session,) = OnnxruntimeGpu().open(open_bundle(bundle), Settings(threads=1))
    assert session.effective.threads == 1
    expected = {"fp32": "f32", "fp16": "f16", "int8": "f32"}[open_bundle(bundle).manifest.precision]
    assert session.effective.execution_precision == expected
    session.close()
