"""Weights files for factories."""

from __future__ import annotations

import os
import pickle

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from ipj_edge.errors import SourceError
from ipj_edge_converters.torch.weights import load_weights


@pytest.fixture
def state():
    return {"weight": torch.full((2, 3), 5.0), "bias": torch.zeros(2)}


def loaded(path):
    module = nn.Linear(3, 2)
    load_weights(module, path)
    return module.weight


def test_safetensors_are_loaded(tmp_path, state):
    save_file(state, tmp_path / "w.safetensors")
    assert torch.equal(loaded(tmp_path / "w.safetensors"), state["weight"])


@pytest.mark.parametrize("name", ["w.pt", "w.pth", "w.th"])
def test_a_state_dict_is_loaded_whatever_its_suffix(tmp_path, state, name):
    torch.save(state, tmp_path / name)
    assert torch.equal(loaded(tmp_path / name), state["weight"])


def test_a_checkpoint_of_a_parallel_model_is_unwrapped(tmp_path, state):
    parallel = {f"module.{key}": value for key, value in state.items()}
    torch.save({"state_dict": parallel, "best": 91.5}, tmp_path / "w.th")
    assert torch.equal(loaded(tmp_path / "w.th"), state["weight"])


def test_a_submodule_that_is_called_module_keeps_its_keys(tmp_path):
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = nn.Linear(3, 2)

    torch.save({"module.weight": torch.ones(2, 3), "module.bias": torch.ones(2)}, tmp_path / "w.pt")
    net = Net()
    load_weights(net, tmp_path / "w.pt")
    assert net.module.bias.tolist() == [1, 1]


def test_the_step_counter_of_batch_normalisation_may_be_missing(tmp_path):
    net = nn.BatchNorm1d(2)
    state = {key: value for key, value in net.state_dict().items() if key != "num_batches_tracked"}
    torch.save(state, tmp_path / "w.pt")
    load_weights(net, tmp_path / "w.pt")


def test_keys_that_do_not_fit_are_all_named_in_one_line(tmp_path):
    torch.save({"weight": torch.zeros(3, 2), "gamma": torch.zeros(2)}, tmp_path / "w.pt")
    with pytest.raises(SourceError) as caught:
        loaded(tmp_path / "w.pt")
    assert str(caught.value) == (
        "'w.pt' does not fit the model: missing: bias; unexpected: gamma; "
        "of another shape: weight is (3, 2), expected (2, 3)"
    )


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path) -> None:
        self.path = str(path)

    def __reduce__(self):
        return (os.mkdir, (self.path,))


@pytest.mark.parametrize("save", [torch.save, lambda item, path: path.write_bytes(pickle.dumps(item))])
def test_a_pickle_with_code_is_refused_and_not_run(tmp_path, save):
    save({"weight": Bomb(tmp_path / "exploded")}, tmp_path / "w.pt")
    with pytest.raises(SourceError, match=r"holds more than tensors.*safetensors") as caught:
        loaded(tmp_path / "w.pt")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "exploded").exists()


def test_a_whole_pickled_module_is_refused(tmp_path):
    torch.save(nn.Linear(3, 2), tmp_path / "w.pt")
    with pytest.raises(SourceError, match="holds more than tensors"):
        loaded(tmp_path / "w.pt")


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt"])
@pytest.mark.parametrize("content", [b"", b"junk", b"PK\x03\x04junk"])
def test_a_corrupt_file_is_refused_in_one_line(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=name) as caught:
        loaded(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(SourceError, match="no weights file"):
        loaded(tmp_path / "w.pt")


def test_a_list_of_tensors_is_no_state_dict(tmp_path):
    torch.save({"optimizer": {"lr": 0.1}, "epoch": 3}, tmp_path / "w.pt")
    with pytest.raises(SourceError, match="not a state dict but a dict with the keys optimizer, epoch"):
        loaded(tmp_path / "w.pt")
