"""The training loop: exact accumulation, resuming bit for bit, diagnostics that name the cause."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ipj_edge.errors import ConfigError, DataError, DestinationError
from ipj_edge_compress import ArrayBatches, TrainingError, TrainPlan, accuracy, cross_entropy, mean_squared_error, train
from ipj_edge_compress.recipes.programs import export
from ipj_edge_compress.training.checkpoints import save_atomically
from ipj_edge_compress.training.optimizers import learning_rate_at

Make = Callable[..., list[tuple[torch.Tensor, torch.Tensor]]]


def linear() -> nn.Module:
    torch.manual_seed(1)
    return nn.Linear(4, 3)


def dropping() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))


def test_digits_are_learned_and_reported(
    small_net: nn.Module, train_batches: ArrayBatches, test_batches: ArrayBatches
) -> None:
    plan = TrainPlan(epochs=5, learning_rate=0.01, schedule="one-cycle", precision="bf16")
    report = train(small_net, train_batches, plan, score=lambda net: accuracy(net, test_batches))
    assert report.epochs[-1].score is not None
    assert report.epochs[-1].score > 0.9
    assert len(report.epochs) == 5
    assert not report.stopped_early
    assert not small_net.training


def test_accumulated_uneven_batches_make_the_same_step_as_one_batch(tiny_batches: Make) -> None:
    pieces = tiny_batches(5, 5, 2)
    whole = [(torch.cat([x for x, _ in pieces]), torch.cat([y for _, y in pieces]))]
    plan = TrainPlan(epochs=3, learning_rate=0.1, optimizer="sgd", accumulate=3)
    one, other = linear(), linear()
    first, second = train(one, pieces, plan), train(other, whole, plan)
    assert torch.allclose(one.weight, other.weight, atol=1e-6)
    assert first.epochs[-1].loss == pytest.approx(second.epochs[-1].loss, abs=1e-6)


def test_the_last_group_of_batches_may_be_short(tiny_batches: Make) -> None:
    pieces = tiny_batches(4, 4, 3)
    joined = [(torch.cat([pieces[0][0], pieces[1][0]]), torch.cat([pieces[0][1], pieces[1][1]])), pieces[2]]
    one, other = linear(), linear()
    train(one, pieces, TrainPlan(epochs=2, learning_rate=0.1, optimizer="sgd", accumulate=2))
    train(other, joined, TrainPlan(epochs=2, learning_rate=0.1, optimizer="sgd"))
    assert torch.allclose(one.weight, other.weight, atol=1e-6)


class _KilledError(Exception):
    pass


@pytest.mark.parametrize("killed_after", [1, 2, 3])
def test_a_resumed_training_ends_with_the_same_bits(tmp_path: Path, tiny_batches: Make, killed_after: int) -> None:
    def batches() -> Any:
        data = tiny_batches(40)[0]
        dataset = torch.utils.data.TensorDataset(*data)
        return torch.utils.data.DataLoader(dataset, batch_size=16, shuffle=True)

    plan = TrainPlan(epochs=4, learning_rate=0.05, accumulate=2, keep_best=True)
    score = lambda net: -float(net[0].weight.detach().abs().sum())  # noqa: E731
    whole, resumed = dropping(), dropping()
    want = train(whole, batches(), plan, score=score)

    def kill(epoch: int, _figures: Any) -> None:
        if epoch == killed_after:
            raise _KilledError

    with pytest.raises(_KilledError):
        train(resumed, batches(), plan, score=score, checkpoint=tmp_path / "c.pt", progress=kill)
    again = dropping()
    got = train(again, batches(), plan, score=score, checkpoint=tmp_path / "c.pt")
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    assert [one.loss for one in got.epochs] == [one.loss for one in want.epochs]
    assert [one.learning_rate for one in got.epochs] == [one.learning_rate for one in want.epochs]


def test_a_checkpoint_of_another_plan_is_refused(tmp_path: Path, tiny_batches: Make) -> None:
    train(linear(), tiny_batches(4), TrainPlan(epochs=1), checkpoint=tmp_path / "c.pt")
    with pytest.raises(TrainingError, match="another plan"):
        train(linear(), tiny_batches(4), TrainPlan(epochs=2), checkpoint=tmp_path / "c.pt")


def test_a_damaged_checkpoint_is_named(tmp_path: Path, tiny_batches: Make) -> None:
    (tmp_path / "c.pt").write_bytes(b"half a file")
    with pytest.raises(TrainingError, match=r"c\.pt cannot be read"):
        train(linear(), tiny_batches(4), TrainPlan(epochs=1), checkpoint=tmp_path / "c.pt")


def test_a_full_disk_is_said_and_the_old_checkpoint_stays(tmp_path: Path) -> None:
    save_atomically([1], tmp_path / "c.pt")
    before = (tmp_path / "c.pt").read_bytes()
    with full_disk(), pytest.raises(DestinationError, match=r"cannot write .*c\.pt: File too large"):
        save_atomically(torch.zeros(1000), tmp_path / "c.pt")
    assert (tmp_path / "c.pt").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["c.pt"]


def test_a_full_disk_is_said_when_a_program_is_written(tmp_path: Path) -> None:
    with full_disk(), pytest.raises(DestinationError, match=r"cannot write .*m\.pt2: File too large"):
        export(nn.Linear(20, 30), "x", torch.zeros(2, 20), tmp_path / "m.pt2")
    assert not list(tmp_path.iterdir())


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file of this process grow beyond 1000 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class Overflowing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.tame = nn.Linear(4, 4), nn.Linear(4, 3)
        self.explode = Explode()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tame(self.explode(self.inner(x)))


class Explode(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(x - x.detach())


def test_a_loss_that_is_no_number_names_the_layer(tiny_batches: Make) -> None:
    with pytest.raises(TrainingError, match="'explode' is the first layer") as caught:
        train(Overflowing(), tiny_batches(4), TrainPlan(epochs=1))
    assert caught.value.layer == "explode"


def test_an_exploded_parameter_is_named(tiny_batches: Make) -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
    with torch.no_grad():
        net[1].weight[0, 0] = float("inf")
    with pytest.raises(TrainingError, match=r"parameter '1\.weight'"):
        train(net, tiny_batches(4), TrainPlan(epochs=1))


def test_data_slower_than_compute_is_a_warning(tiny_batches: Make) -> None:
    class Slow:
        def __iter__(self) -> Iterator[Any]:
            for batch in tiny_batches(4, 4):
                time.sleep(0.05)
                yield batch

    report = train(linear(), Slow(), TrainPlan(epochs=2))
    assert report.waiting_share > 0.5
    assert any("waiting for data" in warning for warning in report.warnings)


def test_unused_parameters_are_a_warning(tiny_batches: Make) -> None:
    net = nn.Linear(4, 3)
    net.forgotten = nn.Linear(2, 2)
    report = train(net, tiny_batches(4), TrainPlan(epochs=1))
    assert any("forgotten.weight" in warning for warning in report.warnings)


@pytest.mark.parametrize(
    ("batches", "said"),
    [
        ([(torch.full((2, 4), float("nan")), torch.zeros(2, dtype=torch.long))], "NaN"),
        ([(torch.zeros(2, 4), torch.zeros(3, dtype=torch.long))], r"\[2, 3\] samples"),
        ([(torch.zeros(2, 4), torch.tensor([0, 3]))], "labels run from 0 to 3, the model has classes 0 to 2"),
        ([torch.zeros(2, 4)], "expected a pair"),
        ([([1.0], torch.zeros(1))], "holds a float"),
    ],
)
def test_data_that_cannot_be_used_is_refused(batches: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        train(linear(), batches, TrainPlan(epochs=1))


def test_an_exhausted_iterator_is_explained(tiny_batches: Make) -> None:
    with pytest.raises(TrainingError, match="gone through once"):
        train(linear(), iter(tiny_batches(4)), TrainPlan(epochs=2))


def test_patience_ends_a_training_that_does_not_improve(tiny_batches: Make) -> None:
    plan = TrainPlan(epochs=20, patience=2)
    report = train(linear(), tiny_batches(4), plan, score=lambda _net: 0.5)
    assert report.stopped_early
    assert len(report.epochs) == 3
    assert report.best_epoch == 0


def test_the_best_epoch_is_kept_if_asked_for(tiny_batches: Make) -> None:
    seen: list[torch.Tensor] = []

    def score(net: nn.Module) -> float:
        seen.append(net.weight.detach().clone())
        return [0.1, 0.9, 0.2][len(seen) - 1]

    net = linear()
    train(net, tiny_batches(4), TrainPlan(epochs=3, learning_rate=0.1, keep_best=True), score=score)
    assert torch.equal(net.weight, seen[1])


def test_fp16_without_cuda_is_refused(tiny_batches: Make) -> None:
    with pytest.raises(ConfigError, match="bf16"):
        train(linear(), tiny_batches(4), TrainPlan(precision="fp16"))


def test_schedules_begin_and_end_as_they_say() -> None:
    cosine, cycle = TrainPlan(learning_rate=1.0), TrainPlan(learning_rate=1.0, schedule="one-cycle")
    assert learning_rate_at(cosine, 0) == 1.0
    assert learning_rate_at(cosine, 1) == pytest.approx(0)
    assert learning_rate_at(cycle, 0) == pytest.approx(0.04)
    assert learning_rate_at(cycle, 0.3) == pytest.approx(1.0)
    assert learning_rate_at(cycle, 1) == pytest.approx(0)


def test_a_score_does_not_change_the_training(tiny_batches: Make) -> None:
    one, other = dropping(), dropping()
    plan = TrainPlan(epochs=3, learning_rate=0.05)
    train(one, tiny_batches(8, 8), plan)
    train(other, tiny_batches(8, 8), plan, score=lambda _net: float(torch.rand(())))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_a_regression_is_trained_with_its_own_loss() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    net = nn.Linear(4, 4)
    report = train(net, [(x, 2 * x)], TrainPlan(epochs=60, learning_rate=0.1), loss=mean_squared_error)
    assert report.epochs[-1].loss < 0.05 * report.epochs[0].loss


def test_label_smoothing_raises_the_floor_of_the_loss() -> None:
    sure = nn.Linear(3, 3, bias=False)
    with torch.no_grad():
        sure.weight.copy_(50 * torch.eye(3))
        x, y = torch.eye(3), torch.arange(3)
        assert float(cross_entropy()(sure, (x,), y)) < 1e-6
        assert float(cross_entropy(label_smoothing=0.1)(sure, (x,), y)) > 1


# torch.compile imports torch.utils.mkldnn, which uses torch's own deprecated torch.jit.script_method (torch 2.13).
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@pytest.mark.slow
def test_a_compiled_training_reports_its_warm_up_apart(tiny_batches: Make) -> None:
    report = train(linear(), tiny_batches(4), TrainPlan(epochs=2, compile=True))
    assert report.compile_s > 0
