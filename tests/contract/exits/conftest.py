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
def exit_data(made_once: Callable[..., Path]) -> Path:
    """train.npz, tune.npz and test.npz of scikit-learn's digits, and weights; tune.npz is enough for a certificate."""

    def make(folder: Path) -> None:
        from sklearn.datasets import load_digits

        digits = load_digits()
        images, labels = (digits.images[:, None] / 16).astype(np.float32), digits.target
        part = np.arange(len(images)) % 10
        for name, rows in (("train", part < 4), ("tune", (part >= 4) & (part < 9)), ("test", part == 9)):
            np.savez(folder / f"{name}.npz", image=images[rows], labels=labels[rows])
        code = "import sys, staged_digits; staged_digits.train(*sys.argv[1:])"
        command = [sys.executable, "-c", code, folder / "train.npz", folder / "weights.safetensors"]
        subprocess.run(command, check=True, cwd=HERE)

    return made_once("exit-data", make)


@pytest.fixture(scope="session")
def exit_bundles(exit_data: Path, ipj_edge_cli: Callable, made_once: Callable[..., Path]) -> Path:
    """The three-exit network, converted for every target at fp32 and int8."""

    def convert(folder: Path) -> None:
        wanted = [part for target in ("openvino-cpu", "onnxruntime-cpu", "tflite-cpu") for part in ("--target", target)]
        ran = ipj_edge_cli(
            "convert", f"{HERE / 'staged_digits.py'}:build", "--weights", exit_data / "weights.safetensors",
            "--input", "image:1x1x8x8", "--calibration", exit_data / "train.npz", "--data", exit_data / "test.npz",
            "--name", "exits", "--precision", "fp32", "--precision", "int8", *wanted, "-o", folder,
        )  # fmt: skip
        assert ran.code == 0, ran

    return made_once("exit-bundles", convert)


@pytest.fixture(params=BUNDLES)
def exit_bundle(exit_bundles: Path, request: pytest.FixtureRequest) -> Path:
    return exit_bundles / str(request.param)


@pytest.fixture(scope="session")
def images(exit_data: Path) -> np.ndarray:
    with np.load(exit_data / "test.npz") as file:
        return file["image"]
