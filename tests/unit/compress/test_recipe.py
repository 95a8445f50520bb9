"""Recipes: read strictly, run step by step, resumed after a kill with the same result, judged at the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from ipj_edge.errors import ConfigError, DataError, SourceError
from ipj_edge.plugins import load_source_opener
from ipj_edge.protocols import RangedSource, SourceRequest
from ipj_edge.values import EnergyPerInference, Reading
from ipj_edge_compress import GoalError, run_recipe
from ipj_edge_compress.cost.energy_account import add_laps
from ipj_edge_compress.cost.payback import payback
from ipj_edge_compress.recipes.recipe import load_recipe

NETS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.inner = nn.Sequential(nn.Conv2d(width, width, 3, stride=2, padding=1), nn.ReLU(), nn.Dropout(0.1))
        self.linear = nn.Linear(16 * width, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.linear(self.inner(self.stem(image)).flatten(1))

def small():
    return Net(8)

def large():
    return Net(12)

def wide():
    return Net(64)
"""

HEAD = """
probe = "modelled"
[model]
factory = "nets.py:small"
[data]
train = "train.npz"
val = "val.npz"
calibration_samples = 100
"""

PRUNE = '[[step]]\ndo = "prune"\n'

STEPS = """
[[step]]
do = "train"
epochs = 3
learning_rate = 0.01
precision = "bf16"
accumulate = 2
[[step]]
do = "distil"
teacher = "nets.py:large"
epochs = 1
alpha = 0.1
[[step]]
do = "prune"
target_macs = 0.7
criterion = "taylor"
finetune_epochs = 2
rounds = 2
[[step]]
do = "exits"
at = ["stem"]
epochs = 2
learning_rate = 0.01
[[step]]
do = "qat"
epochs = 2
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digits_arrays: tuple[np.ndarray, ...]) -> Path:
    """A folder with networks and data, as the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(NETS)
    images, labels, test_images, test_labels = digits_arrays
    np.savez(tmp_path / "train.npz", x=images[:600], labels=labels[:600])
    np.savez(tmp_path / "val.npz", x=test_images, labels=test_labels)
    return tmp_path


def written(place: Path, text: str) -> Path:
    path = place / "recipe.toml"
    path.write_text(text)
    return path


class _KilledError(Exception):
    pass


def kill_at(wanted: str) -> Callable[[str], None]:
    def progress(line: str) -> None:
        if wanted in line:
            raise _KilledError

    return progress


def test_a_recipe_runs_and_leaves_what_a_conversion_needs(place: Path) -> None:
    lines: list[str] = []
    report = run_recipe(written(place, HEAD + STEPS), place / "run", progress=lines.append)
    assert [entry.do for entry in report.steps] == ["train", "distil", "prune", "exits", "qat"]
    assert set(report.files) == {
        "model.safetensors", "model.pt2", "stage_1.pt2", "stage_2.pt2", "calibration.npz", "quantization.json",
    }  # fmt: skip
    assert all((place / "run" / name).is_file() for name in report.files)
    assert report.steps[2].after.size.macs <= 0.7 * report.steps[2].before.size.macs
    assert report.steps[3].after.accuracy[-1] == report.steps[3].before.accuracy[-1], "frozen trunk"
    assert report.energy.joules is not None
    assert report.energy.provenance == "modelled"
    assert report.accuracy_per_joule == pytest.approx(report.steps[-1].after.accuracy[-1] / report.energy.joules)
    assert sum(entry.energy.joules or 0.0 for entry in report.steps) <= report.energy.joules * 1.01
    assert any("epoch 1/3" in line and "loss" in line for line in lines)
    on_disk = msgspec.json.decode((place / "run" / "report.json").read_bytes())
    assert on_disk["steps"][0]["do"] == "train"


def test_a_run_is_a_source_with_its_ranges(place: Path, tmp_path: Path) -> None:
    run_recipe(written(place, HEAD + '[[step]]\ndo = "qat"\nepochs = 1\n'), place / "run")
    opener = load_source_opener("run")
    assert opener.accepts(str(place / "run"))
    assert not opener.accepts(str(place))
    source = opener.open(SourceRequest(location=str(place / "run"), workdir=tmp_path))
    assert isinstance(source, RangedSource)
    assert source.ranges is not None
    assert [spec.name for spec in source.inputs] == ["image"]  # type: ignore[attr-defined]
    assert source.name == "run"  # type: ignore[attr-defined]
    (place / "run" / "quantization.json").write_text("{")
    with pytest.raises(SourceError, match="cannot be read"):
        opener.open(SourceRequest(location=str(place / "run"), workdir=tmp_path))


@pytest.mark.parametrize(
    "moment",
    [
        "1/5 train: epoch 2",
        "2/5 distil: accuracy",
        "3/5 prune: epoch 1",
        "4/5 exits: epoch 1",
        "5/5 qat: epoch 1",
        "5/5 qat: accuracy",
    ],
)
def test_a_killed_run_goes_on_and_ends_with_the_same_bits(place: Path, moment: str) -> None:
    recipe = written(place, HEAD + STEPS)
    run_recipe(recipe, place / "whole")
    with pytest.raises(_KilledError):
        run_recipe(recipe, place / "killed", progress=kill_at(moment))
    run_recipe(recipe, place / "killed")
    for name in ("model.safetensors", "quantization.json"):
        assert (place / "whole" / name).read_bytes() == (place / "killed" / name).read_bytes(), name


def test_images_may_be_varied_in_every_pass(place: Path) -> None:
    varied = HEAD + "[data.vary]\nshift = 1\nmirror = true\nmargin = [-1.0]\n"
    steps = '[[step]]\ndo = "train"\nepochs = 2\nlearning_rate = 0.01\n'
    run_recipe(written(place, HEAD + steps), place / "plain")
    run_recipe(written(place, varied + steps), place / "varied")
    models = [(place / name / "model.safetensors").read_bytes() for name in ("plain", "varied")]
    assert models[0] != models[1]


@pytest.mark.slow
def test_a_model_is_pruned_until_it_is_measured_to_be_faster(place: Path) -> None:
    """Not how much faster: on a busy machine any share may be what was measured."""
    step = PRUNE + 'target_latency = 0.9\non = "onnxruntime-cpu"\nround_to = 4\nfinetune_epochs = 0\n'
    report = run_recipe(written(place, HEAD.replace("small", "wide") + step), place / "run")
    assert report.steps[0].details["cost"] <= 0.9
    assert report.steps[0].after.size.macs < report.steps[0].before.size.macs


def test_a_goal_that_is_missed_is_an_error_that_names_the_step(place: Path) -> None:
    steps = HEAD + '[[step]]\ndo = "train"\nepochs = 4\nlearning_rate = 0.01\n'
    steps += '[[step]]\ndo = "prune"\ntarget_macs = 0.3\nfinetune_epochs = 0\n[goal]\nmax_accuracy_drop = "0.1pp"\n'
    with pytest.raises(GoalError, match=r"lost in step 2 \(prune\), step 1 \(train\) still kept to it") as caught:
        run_recipe(written(place, steps), place / "run")
    assert caught.value.exit_code == 5
    report = msgspec.json.decode((place / "run" / "report.json").read_bytes())
    assert report["goal"]["met"] is False
    assert (place / "run" / "model.pt2").is_file()


def test_a_goal_that_is_met_is_in_the_report(place: Path) -> None:
    steps = HEAD + '[[step]]\ndo = "train"\nepochs = 2\n[goal]\nmax_accuracy_drop = "1pp"\n'
    report = run_recipe(written(place, steps), place / "run")
    assert report.goal is not None
    assert report.goal.met


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD + '[[step]]\ndo = "train"\nepoch = 3\n', r"unknown key 'epoch' \(did you mean 'epochs'\?\)"),
        (HEAD + '[[step]]\ndo = "distill"\n', r"did you mean 'distil'\?"),
        (HEAD + "[[step]]\nepochs = 3\n", "do = None"),
        (HEAD + "[goals]\n", r"unknown key 'goals' \(did you mean 'goal'\?\)"),
        (HEAD.replace("val =", "vall ="), r"\[data\]: unknown key 'vall' \(did you mean 'val'\?\)"),
        (HEAD + '[[step]]\ndo = "train"\nepochs = "three"\n', "Expected `int`"),
        (HEAD + '[[step]]\ndo = "qat"\n[[step]]\ndo = "train"\n', "qat has to be the last"),
        (HEAD + '[[step]]\ndo = "train"\n[goal]\nmax_accuracy_drop = "1"\n', "with their unit"),
        (HEAD + "[data.vary]\nshifts = 1\n", r"\[data.vary\]: unknown key 'shifts' \(did you mean 'shift'"),
        (HEAD + "[data.vary]\nmix = 2.0\n", "mix 0 to 0"),
        (HEAD + PRUNE + "target_macs = 0.5\ntarget_joules = 0.5\n", "target_macs and target_joules"),
        (HEAD + PRUNE + "target_latency = 0.5\n", "says where target_latency"),
        (HEAD + PRUNE + 'on = "tflite-cpu"\n', "both or neither"),
        (HEAD + '[[step]]\ndo = "train"\nepochs = 0\n', "recipe.toml: epochs is at least 1"),
        ("[model\n", "cannot read the recipe"),
    ],
)
def test_a_recipe_that_cannot_be_used_says_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_recipe(written(tmp_path, text))


def test_a_folder_of_another_recipe_is_refused(place: Path) -> None:
    run_recipe(written(place, HEAD + '[[step]]\ndo = "train"\nepochs = 1\n'), place / "run")
    with pytest.raises(ConfigError, match="the run of another recipe"):
        run_recipe(written(place, HEAD + '[[step]]\ndo = "train"\nepochs = 2\n'), place / "run")


def test_data_and_factories_that_fail_are_named(place: Path) -> None:
    step = '[[step]]\ndo = "train"\nepochs = 1\n'
    with pytest.raises(SourceError, match="no callable 'smal'"):
        run_recipe(written(place, HEAD.replace("small", "smal") + step), place / "a")
    (place / "broken.py").write_text("def build():\n    raise RuntimeError('no luck')\n")
    with pytest.raises(SourceError, match="no luck"):
        run_recipe(written(place, HEAD.replace("nets.py:small", "broken.py:build") + step), place / "b")
    images = np.full((4, 1, 8, 8), np.nan, dtype=np.float32)
    np.savez(place / "train.npz", x=images, labels=np.zeros(4, dtype=np.int64))
    with pytest.raises(DataError, match="NaN"):
        run_recipe(written(place, HEAD + step), place / "c")
    np.savez(place / "train.npz", x=np.zeros((4, 1, 8, 8), dtype=np.float32), labels=np.full(4, 10))
    with pytest.raises(DataError, match="labels run from 10 to 10"):
        run_recipe(written(place, HEAD + step), place / "d")


def reading(joules: float | None, *, probe: str = "rapl") -> Reading:
    return Reading(
        joules=joules, reason="" if joules is not None else "unreadable", seconds=2.0, provenance="measured",
        boundary="package", probe=probe, update_interval_s=0.001,
        low=None if joules is None else 0.9 * joules, high=None if joules is None else 1.1 * joules,
    )  # fmt: skip


def energy(value: float | None, half: float = 0.0, *, probe: str = "rapl") -> EnergyPerInference:
    return EnergyPerInference(
        value=value, reason="" if value is not None else "no figure", low=None if value is None else value - half,
        high=None if value is None else value + half, provenance="measured", boundary="package", probe=probe,
        windows=5, inferences=100,
    )  # fmt: skip


def test_laps_add_up_and_a_lap_without_joules_leaves_none() -> None:
    total = add_laps([reading(1.0), reading(2.0)])
    assert total.joules == pytest.approx(3.0)
    assert total.seconds == pytest.approx(4.0)
    assert total.low == pytest.approx(2.7)
    assert add_laps([reading(1.0), reading(None)]).joules is None
    assert "different probes" in add_laps([reading(1.0), reading(1.0, probe="nvml")]).reason


def test_the_payback_point_is_spent_over_saved_with_its_interval() -> None:
    found = payback(reading(100.0), energy(0.3, 0.03), energy(0.1, 0.04))
    assert found.inferences == pytest.approx(500)
    assert found.low == pytest.approx(100 / 0.25)
    assert found.high == pytest.approx(100 / 0.15)
    unsure = payback(reading(100.0), energy(0.3, 0.3), energy(0.1, 0.4))
    assert unsure.high is None
    assert "within its error" in unsure.reason


def test_there_is_no_payback_point_without_a_saving_or_without_joules() -> None:
    assert "never" in payback(reading(1.0), energy(0.1), energy(0.2)).reason
    assert "unreadable" in payback(reading(None), energy(0.2), energy(0.1)).reason
    assert "no figure" in payback(reading(1.0), energy(None), energy(0.1)).reason
    assert "different probes" in payback(reading(1.0), energy(0.2, probe="nvml"), energy(0.1)).reason
