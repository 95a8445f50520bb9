"""Post-training choices: which layers suffer from int8, and the fewest to keep in float."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from ipj_edge.conversion import ConvertRequest
from ipj_edge.errors import ConfigError
from ipj_edge.values import TensorSpec
from ipj_edge_compress import ArrayBatches, GoalError, TrainPlan, accuracy, convert_accurately, sensitivities, train
from ipj_edge_compress.quantize.accuracy_search import fewest_in_float


def test_the_layer_that_suffers_comes_first(
    small_net: nn.Module, train_batches: ArrayBatches, test_batches: ArrayBatches
) -> None:
    train(small_net, train_batches, TrainPlan(epochs=4, learning_rate=0.01, schedule="one-cycle"))
    with torch.no_grad():  # one weight of each channel so large that the others round to zero; its input is removed
        layer = small_net.down
        layer.weight[:, 0, 0, 0] += 1e4
        small_net.group1.conv2.weight[0], small_net.group1.conv2.bias[0] = 0, -1e6  # type: ignore[union-attr,index,operator]
    before = {name: value.clone() for name, value in small_net.state_dict().items()}
    found = sensitivities(small_net, [next(iter(train_batches))[0]], lambda net: accuracy(net, test_batches))
    assert len(found) == 7
    assert "down" in [one.layer for one in found[:3]]
    assert found[0].drop > 0.2
    assert found[-1].drop < 0.05
    assert all(torch.equal(value, before[name]) for name, value in small_net.state_dict().items())


def scores(**gains: float) -> tuple[list[tuple[str, ...]], object]:
    tried: list[tuple[str, ...]] = []

    def attempt(kept: tuple[str, ...]) -> float:
        tried.append(kept)
        return 0.5 + sum(gains[name] for name in kept)

    return tried, attempt


def test_nothing_is_kept_where_nothing_needs_to_be() -> None:
    tried, attempt = scores(a=0.1, b=0.1)
    assert fewest_in_float(["a", "b"], attempt, 0.5).keep_float == ()  # type: ignore[arg-type]
    assert tried == [()]


def test_the_most_helpful_operators_are_kept_in_the_networks_order() -> None:
    _, attempt = scores(a=0.05, b=0.2, c=0.0, d=0.21)
    found = fewest_in_float(["a", "b", "c", "d"], attempt, 0.9)  # type: ignore[arg-type]
    assert found.keep_float == ("b", "d")
    assert found.score == pytest.approx(0.91)


def test_an_operator_that_turns_out_needless_is_left_out_again() -> None:
    def attempt(kept: tuple[str, ...]) -> float:
        alone = {(): 0.5, ("a",): 0.8, ("b",): 0.7, ("c",): 0.6}
        return alone.get(kept, 0.95 if "b" in kept and "c" in kept else 0.8)

    assert fewest_in_float(["a", "b", "c"], attempt, 0.9).keep_float == ("b", "c")


def test_a_goal_that_no_set_meets_says_the_best_found() -> None:
    _, attempt = scores(a=0.1)
    with pytest.raises(GoalError, match=r"reaches 0\.9000; the best of 2 tried is 0\.6000 with a") as caught:
        fewest_in_float(["a"], attempt, 0.9)  # type: ignore[arg-type]
    assert caught.value.exit_code == 5


NET = '''
import torch
from torch import nn

class Net(nn.Module):
    """Rounds badly: one channel of the features is a thousand times as large as the others, and is not used."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(64, 32), nn.Linear(32, 32), nn.Linear(32, 10)

    def forward(self, image):
        x = torch.relu(self.first(image.flatten(1)))
        return self.last(torch.relu(self.second(x)))

def build():
    return Net()
'''


@pytest.mark.slow
@pytest.mark.parametrize("target", ["onnxruntime-cpu", "openvino-cpu", "tflite-cpu"])
def test_a_search_with_real_conversions_meets_the_goal(
    tmp_path: Path, digits_arrays: tuple[np.ndarray, ...], target: str
) -> None:
    images, labels, test_images, test_labels = digits_arrays
    (tmp_path / "net.py").write_text(NET)
    space: dict[str, object] = {}
    exec(NET, space)
    torch.manual_seed(0)
    net = space["build"]()  # type: ignore[operator]
    train(net, ArrayBatches(images, labels, size=64, seed=0), TrainPlan(epochs=8, learning_rate=0.01))
    with torch.no_grad():
        net.second.weight[0], net.second.bias[0] = 1e3, 1e3
        net.last.weight[:, 0] = 0
    torch.save(net.state_dict(), tmp_path / "net.pt")
    np.savez(tmp_path / "cal.npz", image=images[:200])
    np.savez(tmp_path / "test.npz", image=test_images, labels=test_labels)
    request = ConvertRequest(
        source=f"{tmp_path / 'net.py'}:build", targets=(), into=tmp_path / "dist", weights=tmp_path / "net.pt",
        inputs=(TensorSpec(name="image", shape=(1, 1, 8, 8), dtype="float32"),),
        calibration=str(tmp_path / "cal.npz"), data=str(tmp_path / "test.npz"),
    )  # fmt: skip
    found = convert_accurately(request, target, max_accuracy_drop=0.02)
    assert 1 <= len(found.keep_float) < 3, found
    assert (tmp_path / "dist" / f"net.{target}.int8.ipj").is_dir()


def test_a_search_without_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="labelled data"):
        convert_accurately(ConvertRequest(source="x:y", targets=(), into=tmp_path), "tflite-cpu", max_accuracy_drop=0.1)
