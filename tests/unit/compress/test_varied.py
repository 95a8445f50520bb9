"""Images varied in every pass: what moves, what stays, and that it is the same when done again."""

from __future__ import annotations

import pytest
import torch

from ipj_edge.errors import ConfigError, DataError
from ipj_edge_compress import Teaching, TrainPlan, Variation, VariedImages, distil
from ipj_edge_compress.distillation.teachers import TeacherAnswers


def images(count: int = 6) -> torch.Tensor:
    return torch.arange(1.0, 1 + count * 2 * 5 * 7).reshape(count, 2, 5, 7)


def of_one_pass(batches: VariedImages, epoch: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    batches.epoch = epoch
    parts = list(batches)
    return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])


def test_a_pass_is_the_same_when_done_again_and_the_next_one_differs() -> None:
    how = Variation(shift=2, mirror=True, mix=0.5, patch=0.5)
    made = [VariedImages(images(), torch.arange(6), how, size=4, seed=5) for _ in range(2)]
    first, second = (of_one_pass(one)[0] for one in made)
    assert torch.equal(first, second)
    assert not torch.equal(first, of_one_pass(made[0], epoch=1)[0])


def test_shifted_images_are_parts_of_the_image_with_a_margin() -> None:
    x = images()
    seen = set()
    for epoch in range(20):
        moved, labels = of_one_pass(
            VariedImages(x, torch.arange(6), Variation(shift=1, margin=(-1.0, -2.0)), size=6), epoch
        )
        for image, label in zip(moved, labels, strict=True):
            wide = torch.tensor([-1.0, -2.0]).reshape(2, 1, 1).expand(2, 7, 9).clone()
            wide[:, 1:6, 1:8] = x[label]
            places = [(d, r) for d in range(3) for r in range(3) if torch.equal(wide[:, d : d + 5, r : r + 7], image)]
            assert len(places) == 1
            seen.update(places)
    assert len(seen) == 9, "every shift happens"


def test_about_half_are_mirrored() -> None:
    x = images(400)
    moved, labels = of_one_pass(VariedImages(x, torch.arange(400), Variation(mirror=True), size=64))
    turned = [torch.equal(image, x[label].flip(-1)) for image, label in zip(moved, labels, strict=True)]
    assert 0.4 < sum(turned) / 400 < 0.6


def test_a_mixed_image_is_mostly_its_own() -> None:
    x = torch.eye(32).reshape(32, 1, 4, 8)
    mixed, labels = of_one_pass(VariedImages(x, torch.arange(32), Variation(mix=0.5), size=32))
    flat = mixed.flatten(1)
    assert torch.allclose(flat.sum(1), torch.ones(32))
    assert torch.equal(flat.argmax(1), labels)
    assert (flat.max(1).values < 1).any()


def test_a_teacher_answers_varied_images_as_they_come_and_keeps_nothing() -> None:
    torch.manual_seed(0)
    teacher, pupil = (torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(70, 6)) for _ in range(2))
    answers = TeacherAnswers(teacher)
    batches = VariedImages(images() / 400, torch.arange(6), Variation(shift=1, mix=0.5), size=4)
    plan = TrainPlan(epochs=60, learning_rate=0.01)
    report = distil(pupil, answers, batches, plan, teaching=Teaching(temperature=2.0, alpha=1.0))
    assert (answers.hits, answers.misses) == (0, 360)
    assert report.epochs[-1].loss < 0.5 * report.epochs[0].loss


def test_a_patch_is_a_rectangle_of_another_image_at_the_same_place() -> None:
    x = torch.arange(1.0, 41.0).reshape(40, 1, 1, 1) * torch.ones(1, 1, 6, 8)
    patched, labels = of_one_pass(VariedImages(x, torch.arange(40), Variation(patch=1.0), size=40))
    found = 0
    for image, label in zip(patched[:, 0], labels, strict=True):
        other = image != label + 1
        rows, columns = other.any(1), other.any(0)
        assert torch.equal(other, rows[:, None] & columns[None]), "a rectangle"
        assert other.float().mean() <= 0.5
        assert len(image[other].unique()) <= 1
        found += bool(other.any())
    assert found > 20


def test_what_cannot_be_varied_is_refused() -> None:
    with pytest.raises(DataError, match="channels, height, width"):
        VariedImages(torch.zeros(3, 4), torch.zeros(3), Variation(), size=2)
    with pytest.raises(ConfigError, match=r"mix 0 to 0\.5"):
        Variation(mix=0.9)
    with pytest.raises(ConfigError, match="one a channel, got 3"):
        VariedImages(images(), torch.arange(6), Variation(margin=(0.0, 0.0, 0.0)), size=2)
