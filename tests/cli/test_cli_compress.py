"""``ipj-edge compress``: exit codes and tables; what it leaves converts for every target."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]

RECIPE = f"""
probe = "modelled"
[model]
factory = "{ROOT / "examples" / "digits.py"}:build"
[data]
train = "train.npz"
val = "val.npz"
calibration_samples = 200
[[step]]
do = "train"
epochs = 6
learning_rate = 0.01
schedule = "one-cycle"
[[step]]
do = "prune"
target_macs = 0.6
finetune_epochs = 2
[[step]]
do = "qat"
epochs = 1
[goal]
max_accuracy_drop = "GOAL"
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from sklearn.datasets import load_digits

    folder = tmp_path_factory.mktemp("recipe")
    digits = load_digits()
    images, labels = (digits.images[:, None] / 16).astype(np.float32), digits.target
    test = np.arange(len(images)) % 5 == 0
    np.savez(folder / "train.npz", x=images[~test], labels=labels[~test])
    np.savez(folder / "val.npz", x=images[test], labels=labels[test])
    return folder


@pytest.fixture(scope="module")
def run(place: Path, ipj_edge_cli: Callable[..., Any]) -> Any:
    (place / "recipe.toml").write_text(RECIPE.replace("GOAL", "5pp"))
    return ipj_edge_cli("compress", "recipe.toml", "-o", "run", "--json", "report.json", cwd=place)


@pytest.mark.slow
def test_a_recipe_prints_what_every_step_cost(run: Any, place: Path) -> None:
    assert run.code == 0, run
    for word in ("train", "prune", "qat", "modelled", "intelligence per joule of training"):
        assert word in run.out
    # Figures of single epochs come where an epoch is long enough for one; every step has its own.
    assert run.err.count("± 50 % (modelled, process)") == 3
    report = json.loads((place / "report.json").read_text())
    assert report["goal"]["met"] is True


@pytest.mark.slow
def test_a_finished_run_converts_for_every_target(run: Any, place: Path, ipj_edge_cli: Callable[..., Any]) -> None:
    assert run.code == 0, run
    targets = [part for name in ("openvino-cpu", "onnxruntime-cpu", "tflite-cpu") for part in ("--target", name)]
    made = ipj_edge_cli(
        "convert", "run", *targets, "--precision", "int8", "--calibration", "run/calibration.npz", "--data", "val.npz",
        "--max-accuracy-drop", "2pp", "-o", "dist", cwd=place,
    )  # fmt: skip
    assert made.code == 0, made
    assert len(list((place / "dist").iterdir())) == 3


@pytest.mark.slow
def test_an_unreachable_goal_ends_with_5_and_what_was_found(place: Path, ipj_edge_cli: Callable[..., Any]) -> None:
    text = RECIPE.replace("GOAL", "0pp").replace("finetune_epochs = 2", "finetune_epochs = 0")
    (place / "hard.toml").write_text(
        text.replace("target_macs = 0.6", "target_macs = 0.1").replace("epochs = 6", "epochs = 3")
    )
    ran = ipj_edge_cli("compress", "hard.toml", "-o", "hard", cwd=place)
    assert ran.code == 5, ran
    assert "goal missed" in ran.err
    assert "Traceback" not in ran.err


def test_an_unknown_key_ends_with_2_and_names_the_nearest(place: Path, ipj_edge_cli: Callable[..., Any]) -> None:
    (place / "wrong.toml").write_text(RECIPE.replace("target_macs", "target_mac"))
    ran = ipj_edge_cli("compress", "wrong.toml", "-o", "wrong", cwd=place)
    assert ran.code == 2
    assert "did you mean 'target_macs'?" in ran.err
