"""Distillation: the formula, a frozen teacher, answers that are computed once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from ipj_edge.errors import ConfigError, DataError
from ipj_edge_compress import ArrayBatches, ModelError, Teaching, TrainPlan, distil
from ipj_edge_compress.distillation.distil import projector
from ipj_edge_compress.distillation.teachers import TeacherAnswers, sample_keys
from ipj_edge_compress.training.losses import softened_kl

Make = Callable[..., list[tuple[torch.Tensor, torch.Tensor]]]
PLAN = TrainPlan(epochs=3, learning_rate=0.05)


class Counting(nn.Module):
    """Counts the samples it sees."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.hidden, self.out, self.seen = nn.Linear(4, 8), nn.Linear(8, classes), 0
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += len(x)
        return self.out(torch.relu(self.norm(self.hidden(x))))


def student() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))


def test_the_softened_loss_is_temperature_squared_times_the_mean_kl_divergence() -> None:
    a, b, temperature = torch.randn(6, 3), torch.randn(6, 3), 4.0
    p, q = torch.softmax(b / temperature, 1), torch.softmax(a / temperature, 1)
    want = temperature**2 * (p * (p.log() - q.log())).sum(1).mean()
    assert torch.allclose(softened_kl(a, b, temperature), want, atol=1e-6)


def test_the_gradient_keeps_its_size_as_the_temperature_rises() -> None:
    teacher = torch.randn(8, 3)
    sizes = []
    for temperature in (20.0, 40.0):
        logits = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
        softened_kl(logits, teacher, temperature).backward()
        assert logits.grad is not None
        sizes.append(float(logits.grad.norm()))
    assert sizes[0] == pytest.approx(sizes[1], rel=0.05)


def test_a_student_comes_nearer_to_its_teacher(tiny_batches: Make) -> None:
    teacher, pupil, batches = Counting().eval(), student(), tiny_batches(32, 32)
    x = torch.cat([inputs for inputs, _ in batches])
    with torch.no_grad():
        before = softened_kl(pupil(x), teacher(x), 2.0)
    plan = TrainPlan(epochs=30, learning_rate=0.05)
    distil(pupil, teacher, batches, plan, teaching=Teaching(temperature=2.0, alpha=1.0))
    with torch.no_grad():
        assert softened_kl(pupil(x), teacher(x), 2.0) < 0.2 * before


def test_the_teacher_is_left_as_it_was(tiny_batches: Make) -> None:
    teacher = Counting().train()
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    distil(student(), teacher, tiny_batches(16), PLAN)
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())
    assert all(parameter.grad is None for parameter in teacher.parameters())
    assert teacher.training


def test_the_teacher_runs_once_for_each_sample_however_they_are_shuffled(tmp_path: Path, tiny_batches: Make) -> None:
    x, y = tiny_batches(20)[0]
    teacher, cache = Counting(), tmp_path / "teacher.npz"
    distil(student(), TeacherAnswers(teacher, cache), ArrayBatches(x, y, size=6, seed=1), PLAN)
    assert teacher.seen == 20
    distil(student(), TeacherAnswers(teacher, cache), ArrayBatches(x, y, size=7, seed=2), PLAN)
    assert teacher.seen == 20


def test_another_teacher_does_not_get_the_first_ones_answers(tmp_path: Path, tiny_batches: Make) -> None:
    batches, cache = tiny_batches(8), tmp_path / "teacher.npz"
    one, other = Counting(), Counting()
    TeacherAnswers(one, cache).fill(batches)
    with torch.no_grad():
        other.out.bias += 1
    answers = TeacherAnswers(other, cache)
    with torch.no_grad():
        assert torch.equal(answers((batches[0][0],)), other.eval()(batches[0][0]))


def test_a_damaged_cache_is_named(tmp_path: Path) -> None:
    (tmp_path / "teacher.npz").write_bytes(b"PK half")
    with pytest.raises(DataError, match=r"teacher\.npz cannot be read"):
        TeacherAnswers(Counting(), tmp_path / "teacher.npz")


def test_samples_are_told_apart_by_all_their_inputs() -> None:
    a, b = torch.zeros(2, 3), torch.tensor([[0.0], [1.0]])
    keys = sample_keys((a, b))
    assert keys[0] != keys[1]
    assert sample_keys((a[:1], b[:1])) == keys[:1]


def test_features_are_pulled_towards_the_teachers(tiny_batches: Make) -> None:
    teacher, pupil = Counting().eval(), student()
    plan, teaching = TrainPlan(epochs=40, learning_rate=0.05), Teaching(features={"0": "hidden"})
    report = distil(pupil, teacher, tiny_batches(32), plan, teaching=teaching)
    assert report.epochs[-1].loss < 0.6 * report.epochs[0].loss
    assert not any(module._forward_hooks for module in (*teacher.modules(), *pupil.modules()))
    assert isinstance(pupil[0], nn.Linear)  # type: ignore[index]


def test_labels_alone_are_plain_training(tiny_batches: Make) -> None:
    batches, pupil = tiny_batches(32), student()
    x, y = batches[0]
    before = functional.cross_entropy(pupil(x), y)
    distil(pupil, Counting(), batches, TrainPlan(epochs=30, learning_rate=0.05), teaching=Teaching(alpha=0.0))
    assert functional.cross_entropy(pupil(x), y) < before


def test_what_does_not_fit_is_refused(tiny_batches: Make) -> None:
    with pytest.raises(ModelError, match="same classes"):
        distil(student(), Counting(classes=5), tiny_batches(8), PLAN)
    with pytest.raises(ConfigError, match="alpha"):
        distil(student(), Counting(), tiny_batches(8), PLAN, teaching=Teaching(alpha=1.5))
    with pytest.raises(ModelError, match="no module 'layer9'"):
        distil(student(), Counting(), tiny_batches(8), PLAN, teaching=Teaching(features={"layer9": "hidden"}))


def test_features_of_equal_shapes_are_compared_as_they_are() -> None:
    assert isinstance(projector(torch.zeros(2, 4, 3, 3), torch.zeros(2, 4, 3, 3)), nn.Identity)
    assert isinstance(projector(torch.zeros(2, 4, 3, 3), torch.zeros(2, 8, 3, 3)), nn.Conv2d)
