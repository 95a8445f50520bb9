"""The pt2 source."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from torch import nn

from ipj_edge.errors import SourceError
from ipj_edge.values import TensorSpec
from ipj_edge_converters.torch.pt2 import Pt2Opener


@pytest.fixture
def save(tmp_path):
    """Export a module, save it and return the path."""

    def save_program(module, *args, name="net.pt2", dynamic_shapes=None, kwargs=None):
        program = torch.export.export(module.eval(), args, kwargs, dynamic_shapes=dynamic_shapes)
        torch.export.save(program, tmp_path / name)
        return tmp_path / name

    return save_program


BATCH = torch.export.Dim("n", min=1, max=64)


def linear(save, **more):
    return save(nn.Linear(3, 2), torch.zeros(2, 3), dynamic_shapes=({0: BATCH},), **more)


def test_a_dynamic_batch_is_found_in_the_program(save, request_for):
    source = Pt2Opener().open(request_for(linear(save)))
    assert (source.kind, source.name, source.file) == ("pt2", "net", "net.pt2")
    assert (source.inputs[0].name, source.inputs[0].shape, source.inputs[0].dtype) == (
        "input",
        ("batch", 3),
        "float32",
    )
    assert source.outputs[0].shape == ("batch", 2)
    assert source.forms == ("onnx", "torch")


def test_the_program_and_its_onnx_form_answer_alike_at_every_batch(save, request_for):
    import onnxruntime

    source = Pt2Opener().open(request_for(linear(save), max_batch=4))
    session = onnxruntime.InferenceSession(source.onnx_path())
    for batch in (1, 2, 9):
        feeds = {"input": np.random.default_rng(batch).random((batch, 3), np.float32)}
        np.testing.assert_allclose(session.run(None, feeds)[0], source.run(feeds)["output"], rtol=1e-5, atol=1e-6)


def test_a_static_program_stays_static(save, request_for):
    source = Pt2Opener().open(request_for(save(nn.Linear(3, 2), torch.zeros(1, 3))))
    assert source.inputs[0].shape == (1, 3)
    assert source.outputs[0].shape == (1, 2)
    assert source.run({"input": np.zeros((5, 3), np.float32)})["output"].shape == (5, 2)
    assert source.notes == ("the batch is static: the program was exported so",)


class Keywords(nn.Module):
    def forward(self, a, pair, *, gain):
        return {"sum": a + pair[0] * gain, "other": (pair[1], None)}


def test_nested_and_keyword_inputs_are_handed_on_as_exported(save, request_for):
    import onnxruntime

    # Four tensors: torch.export takes one tensor given twice for one input.
    a, first, second, gain = (torch.zeros(1, 2) for _ in range(4))
    source = Pt2Opener().open(request_for(save(Keywords(), a, (first, second), kwargs={"gain": gain})))
    names = [item.name for item in source.inputs]
    assert len(names) == 4
    assert [item.name for item in source.outputs] == ["sum", "other_0"]
    feeds = {name: np.full((1, 2), value, np.float32) for name, value in zip(names, (1, 2, 3, 4), strict=True)}
    answer = source.run(feeds)
    assert answer["sum"].tolist() == [[9, 9]]
    assert answer["other_0"].tolist() == [[3, 3]]
    found = onnxruntime.InferenceSession(source.onnx_path()).run(["sum", "other_0"], feeds)
    assert [item.tolist() for item in found] == [[[9, 9]], [[3, 3]]]


class Mean(nn.Module):
    def forward(self, tokens):
        return tokens.float().mean(1, keepdim=True)


def test_another_open_size_is_asked_for_and_then_fixed(save, request_for):
    import onnx

    length = torch.export.Dim("length", min=2, max=100)
    path = save(Mean(), torch.zeros(2, 5, dtype=torch.int64), dynamic_shapes=({0: BATCH, 1: length},))
    with pytest.raises(SourceError, match=r"leaves the size of axis 1 open: add --input tokens:SIZExSIZE"):
        Pt2Opener().open(request_for(path))
    source = Pt2Opener().open(request_for(path, ("tokens", (1, 7), "int64")))
    assert source.inputs[0].shape == ("batch", 7)
    sizes = onnx.load(source.onnx_path()).graph.input[0].type.tensor_type.shape.dim
    assert [size.dim_param or size.dim_value for size in sizes] == ["batch", 7]


def test_descriptions_add_ranges_and_output_names(save, request_for):
    said = TensorSpec(name="input", shape=(1, 3), dtype="float32", value_range=(0, 255), layout="NC")
    source = Pt2Opener().open(request_for(linear(save), said, output_names=("logits",)))
    assert source.inputs[0].value_range == (0, 255)
    assert source.inputs[0].shape == ("batch", 3)
    assert source.outputs[0].name == "logits"


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (("image", (1, 3)), "has no input image; its inputs are input"),
        (("input", (1, 4)), "is batchx3 in the model; 1x4 was described"),
        (("input", (1, 3), "int64"), "is float32 in the model; int64 was described"),
    ],
)
def test_descriptions_that_contradict_the_program_are_refused(save, request_for, said, message):
    with pytest.raises(SourceError, match=message):
        Pt2Opener().open(request_for(linear(save), said))


def test_a_program_that_refuses_single_samples_is_refused(save, request_for):
    pairs = torch.export.Dim("n", min=2, max=64)
    path = save(nn.Linear(3, 2), torch.zeros(4, 3), dynamic_shapes=({0: pairs},))
    with pytest.raises(SourceError, match=r"no batch below 2: export it with Dim\('batch', min=1\)"):
        Pt2Opener().open(request_for(path))


def test_the_largest_exported_batch_is_kept_to(save, request_for):
    few = torch.export.Dim("n", min=1, max=3)
    path = save(nn.Linear(3, 2), torch.zeros(2, 3), dynamic_shapes=({0: few},))
    source = Pt2Opener().open(request_for(path, max_batch=32))
    assert source.run({"input": np.zeros((20, 3), np.float32)})["output"].shape == (20, 2)


@pytest.mark.parametrize("cut", [0, 4, 500, -100])
def test_a_cut_file_is_refused_in_one_line(save, request_for, cut):
    path = linear(save)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(SourceError, match=r"net\.pt2") as caught:
        Pt2Opener().open(request_for(path))
    assert "\n" not in str(caught.value)


def test_a_state_dict_that_is_called_pt2_is_refused(tmp_path, request_for):
    torch.save({"weight": torch.zeros(2)}, tmp_path / "net.pt2")
    with pytest.raises(SourceError, match=r"cannot be read as a \.pt2 program") as caught:
        Pt2Opener().open(request_for(tmp_path / "net.pt2"))
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_refused(request_for):
    with pytest.raises(SourceError, match="no file"):
        Pt2Opener().open(request_for("nowhere.pt2"))


class Bomb:
    def __init__(self, path) -> None:
        self.path = str(path)

    def __reduce__(self):
        return (os.mkdir, (self.path,))


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".pkl", ".bin", ".th", ".ckpt"])
def test_other_pickles_are_refused_unopened_with_what_to_do(tmp_path, request_for, suffix):
    torch.save(Bomb(tmp_path / "exploded"), tmp_path / f"net{suffix}")
    opener = Pt2Opener()
    assert opener.accepts(f"net{suffix}")
    with pytest.raises(SourceError, match=r"name a factory \(model.py:build\).*--weights"):
        opener.open(request_for(tmp_path / f"net{suffix}"))
    assert not (tmp_path / "exploded").exists()


def test_a_half_precision_program_is_refused(save, request_for):
    path = save(nn.Linear(3, 2).half(), torch.zeros(1, 3, dtype=torch.float16))
    with pytest.raises(SourceError, match="half precision: export the model in float32"):
        Pt2Opener().open(request_for(path))


def test_pt2_files_are_recognised_by_their_suffix():
    assert Pt2Opener().accepts("folder/net.pt2")
    assert not Pt2Opener().accepts("net.onnx")
    assert not Pt2Opener().accepts("net.py:build")
