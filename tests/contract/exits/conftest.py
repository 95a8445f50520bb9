"""A trained three-exit network, converted for every target at both precisions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
BUNDLES = [f"exits.{target}.{precision}.ipj" for target in ("openvino-cpu", "onnxruntime-cpu", "tflite-cpu")
           for precision in ("fp32", "int8")]  # fmt: skip


@pytest.fixture(scope="session")
def exit_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train.npz, tune.npz and test.npz of scikit-learn's digits; tune.npz is large enough for a certificate."""
    from sklearn.datasets import load_digits

    folder = tmp_path_factory.mktemp("exits")
    digits = load_digits()
    images, labels = (digits.images[:, None] / 16).astype(np.float32), digits.target
    part = np.arange(len(images)) % 10
    for name, rows in (("train", part < 4), ("tune", (part >= 4) & (part < 9)), ("test", part == 9)):
        np.savez(folder / f"{name}.npz", image=images[rows], labels=labels[rows])
    return folder


@pytest.fixture(scope="session")
def exit_bundles(exit_data: Path, ipj_edge_cli: Callable) -> Path:
    weights = exit_data / "weights.safetensors"
    code = "import sys, staged_digits; staged_digits.train(*sys.argv[1:])"
    subprocess.run([sys.executable, "-c", code, exit_data / "train.npz", weights], check=True, cwd=HERE)
    wanted = [part for target in ("openvino-cpu", "onnxruntime-cpu", "tflite-cpu") for part in ("--target", target)]
    ran = ipj_edge_cli(
        "convert", f"{HERE / 'staged_digits.py'}:build", "--weights", weights, "--input", "image:1x1x8x8",
        "--calibration", exit_data / "train.npz", "--data", exit_data / "test.npz", "--name", "exits",
        "--precision", "fp32", "--precision", "int8", *wanted, "-o", exit_data / "dist",
    )  # fmt: skip
    assert ran.code == 0, ran
    return exit_data / "dist"


@pytest.fixture(params=BUNDLES)
def exit_bundle(exit_bundles: Path, request: pytest.FixtureRequest) -> Path:
    return exit_bundles / str(request.param)


@pytest.fixture(scope="session")
def images(exit_data: Path) -> np.ndarray:
    with np.load(exit_data / "test.npz") as file:
        return file["image"]
