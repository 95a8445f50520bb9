"""The torch source: factories, weights, inputs, outputs, dynamic batch, the ONNX form."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from ipj_edge.errors import SourceError
from ipj_edge.values import TensorSpec
from ipj_edge_converters.torch.opener import TorchOpener

IMAGE = ("image", (1, 1, 8, 8))


@pytest.fixture
def open_net(write, request_for):
    """Open the factory ``build`` of a file with this text."""

    def open_text(text, *inputs, **more):
        path = write("import torch\nfrom torch import nn\n" + text)
        return TorchOpener().open(request_for(f"{path}:build", *inputs, **more))

    return open_text


def answers_of_onnx(source, feeds):
    import onnxruntime

    session = onnxruntime.InferenceSession(source.onnx_path())
    names = [value.name for value in session.get_outputs()]
    assert names == [output.name for output in source.outputs]
    return dict(zip(names, session.run(None, feeds), strict=True))


def test_a_factory_gives_a_source_with_a_dynamic_batch_named_batch(nets, request_for):
    source = TorchOpener().open(request_for(f"{nets}:build", IMAGE))
    assert (source.kind, source.name, source.file, source.precision) == ("torch", "net", "net.py", "fp32")
    assert source.inputs[0].shape == ("batch", 1, 8, 8)
    assert (source.outputs[0].name, source.outputs[0].shape) == ("output", ("batch", 10))
    assert source.outputs[0].batch_axis == 0
    assert source.forms == ("onnx", "torch")
    assert source.notes == ()
    assert source.versions["torch"].startswith("2.")


def test_any_number_of_samples_runs_and_each_is_answered_as_if_alone(nets, request_for):
    source = TorchOpener().open(request_for(f"{nets}:build", IMAGE, max_batch=4))
    images = np.random.default_rng(1).random((11, 1, 8, 8), np.float32)
    together = source.run({"image": images})["output"]
    alone = [source.run({"image": images[i : i + 1]})["output"] for i in range(11)]
    assert together.shape == (11, 10)
    np.testing.assert_allclose(together, np.concatenate(alone), rtol=1e-5, atol=1e-6)


def test_the_onnx_form_has_the_sources_names_sizes_and_answers_at_every_batch(nets, request_for):
    import onnx

    source = TorchOpener().open(request_for(f"{nets}:build", IMAGE, output_names=("scores",)))
    model = onnx.load(source.onnx_path())
    assert [size.dim_param or size.dim_value for size in model.graph.input[0].type.tensor_type.shape.dim] == [
        *("batch", 1, 8, 8)
    ]
    assert model.opset_import[0].version == 18
    for batch in (1, 2, 7):
        feeds = {"image": np.random.default_rng(batch).random((batch, 1, 8, 8), np.float32)}
        np.testing.assert_allclose(
            answers_of_onnx(source, feeds)["scores"], source.run(feeds)["scores"], rtol=1e-4, atol=1e-6
        )


def test_the_onnx_file_is_made_once_and_names_no_path_of_this_machine(nets, request_for):
    source = TorchOpener().open(request_for(f"{nets}:build", IMAGE))
    path = source.onnx_path()
    stamp = path.stat().st_mtime_ns
    assert source.onnx_path() == path
    assert path.stat().st_mtime_ns == stamp
    content = path.read_bytes()
    for trace in (b"site-packages", b"pkg.torch", b"stack_trace", b".py", str(nets.parent).encode()):
        assert trace not in content


def test_the_torch_form_takes_inputs_by_position_and_returns_a_tuple(nets, request_for):
    import torch

    source = TorchOpener().open(request_for(f"{nets}:build", IMAGE))
    answer = source.torch_module()(torch.zeros(2, 1, 8, 8))
    assert isinstance(answer, tuple)
    assert answer[0].shape == (2, 10)


def test_a_module_class_and_a_module_instance_are_factories_too(write, request_for):
    path = write(
        "from torch import nn\nclass Twice(nn.Module):\n    def forward(self, x): return 2 * x\nmade = Twice()\n"
    )
    for name in ("Twice", "made"):
        source = TorchOpener().open(request_for(f"{path}:{name}", ("x", (1, 3))))
        assert source.run({"x": np.ones((1, 3), np.float32)})["output"].tolist() == [[2, 2, 2]]


def test_a_package_is_found_from_the_working_directory(tmp_path, monkeypatch, request_for):
    (tmp_path / "my_models").mkdir()
    (tmp_path / "my_models" / "__init__.py").write_text("")
    (tmp_path / "my_models" / "net.py").write_text("from torch import nn\ndef build(): return nn.Linear(3, 2)\n")
    monkeypatch.chdir(tmp_path)
    source = TorchOpener().open(request_for("my_models.net:build", ("x", (1, 3))))
    assert (source.name, source.file) == ("net", "net.py")
    assert str(tmp_path) not in sys.path


def test_a_file_imports_its_neighbours_and_prints_nothing_to_stdout(write, request_for, capsys):
    write("WIDTH = 5\n", "neighbour.py")
    path = write(
        "print('imported')\nfrom torch import nn\nfrom neighbour import WIDTH\ndef build():\n"
        "    print('built')\n    return nn.Linear(3, WIDTH)\n"
    )
    source = TorchOpener().open(request_for(f"{path}:build", ("x", (1, 3))))
    source.onnx_path()
    source.count()
    assert source.outputs[0].shape == ("batch", 5)
    assert capsys.readouterr().out == ""


def test_a_model_that_branches_on_the_batch_size_stays_static_with_the_reason(open_net):
    source = open_net(
        "class Net(nn.Module):\n    def forward(self, x): return 2 * x if x.shape[0] == 1 else x\nbuild = Net\n",
        ("x", (1, 3)),
    )
    assert source.inputs[0].shape == (1, 3)
    assert source.outputs[0].shape == (1, 3)
    assert source.notes == ("the batch is static: the model computes differently at batch 1 than at 2",)
    three = np.arange(9, dtype=np.float32).reshape(3, 3)
    np.testing.assert_array_equal(source.run({"x": three})["output"], 2 * three)


def test_a_model_that_freezes_the_batch_stays_static_with_torchs_reason(open_net):
    source = open_net(
        "class Net(nn.Module):\n    def forward(self, x): return x.reshape(2, 6)\nbuild = Net\n", ("x", (2, 2, 3))
    )
    assert source.inputs[0].shape == (2, 2, 3)
    assert "batch is static" in source.notes[0]
    assert "\n" not in source.notes[0]
    with pytest.raises(SourceError, match="2 samples at a time; 3 is not a multiple"):
        source.run({"x": np.zeros((3, 2, 3), np.float32)})


def test_a_largest_batch_of_one_is_static(nets, request_for):
    source = TorchOpener().open(request_for(f"{nets}:build", IMAGE, max_batch=1))
    assert source.inputs[0].shape == (1, 1, 8, 8)


def test_integer_inputs_work_like_images(open_net):
    source = open_net(
        "class Net(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.table, self.head = nn.Embedding(20, 8), nn.Linear(8, 3)\n"
        "    def forward(self, tokens): return self.head(self.table(tokens).mean(1))\nbuild = Net\n",
        TensorSpec(name="tokens", shape=(1, 6), dtype="int64", value_range=(0, 19)),
    )
    assert (source.inputs[0].dtype, source.inputs[0].shape) == ("int64", ("batch", 6))
    feeds = {"tokens": np.random.default_rng(0).integers(0, 20, (5, 6))}
    np.testing.assert_allclose(answers_of_onnx(source, feeds)["output"], source.run(feeds)["output"], atol=1e-6)


TWO = (
    "class Net(nn.Module):\n    def forward(self, a, b, gain=None):\n"
    "        return {'sum': a + b, 'difference': a - b}\nbuild = Net\n"
)


def test_inputs_are_handed_on_by_name_when_all_names_are_parameters(open_net):
    source = open_net(TWO, ("b", (1, 2)), ("a", (1, 2)))
    feeds = {"a": np.full((1, 2), 3, np.float32), "b": np.full((1, 2), 1, np.float32)}
    assert source.run(feeds)["difference"].tolist() == [[2, 2]]
    assert answers_of_onnx(source, feeds)["difference"].tolist() == [[2, 2]]


def test_other_names_are_handed_on_by_position(open_net):
    source = open_net(TWO, ("left", (1, 2)), ("right", (1, 2)))
    feeds = {"left": np.full((1, 2), 3, np.float32), "right": np.full((1, 2), 1, np.float32)}
    assert source.run(feeds)["difference"].tolist() == [[2, 2]]


def test_an_input_without_a_batch_axis_stays_as_it_is(open_net):
    source = open_net(
        "class Net(nn.Module):\n    def forward(self, x, gain): return x * gain\nbuild = Net\n",
        *(("x", (1, 2)), ("gain", ())),
    )
    assert [item.shape for item in source.inputs] == [("batch", 2), ()]
    feeds = {"x": np.ones((3, 2), np.float32), "gain": np.full((), 4, np.float32)}
    assert source.run(feeds)["output"].tolist() == [[4, 4]] * 3
    assert answers_of_onnx(source, feeds)["output"].tolist() == [[4, 4]] * 3


@pytest.mark.parametrize(
    ("returned", "names"),
    [
        ("x", ["output"]),
        ("(x,)", ["output"]),
        ("[x, x + 1]", ["output_0", "output_1"]),
        ("{'logits': x, 'features': x + 1}", ["logits", "features"]),
        ("{'logits': x, 'hidden': (x, x + 1)}", ["logits", "hidden_0", "hidden_1"]),
        ("Out(loss=None, logits=x)", ["logits"]),
        ("Pair(x, x + 1)", ["mean", "spread"]),
    ],
)
def test_outputs_are_named_after_what_the_model_returns(open_net, returned, names):
    source = open_net(
        "import dataclasses, collections\nPair = collections.namedtuple('Pair', 'mean spread')\n"
        "@dataclasses.dataclass\nclass Out:\n    loss: object\n    logits: object\n"
        f"class Net(nn.Module):\n    def forward(self, x): return {returned}\nbuild = Net\n",
        ("x", (1, 2)),
    )
    assert [item.name for item in source.outputs] == names
    feeds = {"x": np.ones((2, 2), np.float32)}
    found, wanted = answers_of_onnx(source, feeds), source.run(feeds)
    assert {name: value.tolist() for name, value in found.items()} == {k: v.tolist() for k, v in wanted.items()}


def test_the_same_tensor_returned_twice_is_two_outputs(open_net):
    source = open_net(
        "class Net(nn.Module):\n    def forward(self, x):\n        y = x + 1\n        return y, y\nbuild = Net\n",
        ("x", (1, 2)),
    )
    feeds = {"x": np.ones((2, 2), np.float32)}
    assert answers_of_onnx(source, feeds)["output_1"].tolist() == [[2, 2], [2, 2]]


def test_output_names_replace_the_models_own(open_net):
    source = open_net(TWO, ("a", (1, 2)), ("b", (1, 2)), output_names=("plus", "minus"))
    assert [item.name for item in source.outputs] == ["plus", "minus"]


@pytest.mark.parametrize(("names", "message"), [(("one",), "2 outputs"), (("one", "one"), "must differ")])
def test_output_names_that_do_not_fit_are_refused(open_net, names, message):
    with pytest.raises(SourceError, match=message):
        open_net(TWO, ("a", (1, 2)), ("b", (1, 2)), output_names=names)


def test_an_output_that_grows_with_the_batch_otherwise_proves_no_batch(open_net):
    source = open_net(
        "class Net(nn.Module):\n    def forward(self, x): return x.reshape(-1, 2)\nbuild = Net\n",
        ("x", (1, 3, 4)),
    )
    assert (source.outputs[0].shape, source.outputs[0].batch_axis) == ((6, 2), None)
    assert (source.inputs[0].shape, source.inputs[0].batch_axis) == ((1, 3, 4), None)
    assert source.only_size == "no output has an answer for each place along axis 0 of 'x'"


def test_half_precision_weights_are_widened_and_remembered(open_net):
    source = open_net("def build(): return nn.Linear(3, 2).half()\n", ("x", (1, 3)))
    assert source.precision == "fp16"
    assert source.run({"x": np.ones((1, 3), np.float32)})["output"].dtype == np.float32


def test_a_model_without_given_weights_is_the_same_every_time(nets, request_for):
    opened = [TorchOpener().open(request_for(f"{nets}:build", IMAGE)) for _ in range(2)]
    image = np.ones((1, 1, 8, 8), np.float32)
    first, second = (source.run({"image": image})["output"] for source in opened)
    np.testing.assert_array_equal(first, second)


def test_the_hash_covers_factory_file_callable_and_weights(nets, request_for, tmp_path):
    import torch
    from safetensors.torch import save_file

    weights = tmp_path / "w.safetensors"
    save_file({"weight": torch.zeros(2, 3), "bias": torch.zeros(2)}, weights)
    path = tmp_path / "linear.py"
    path.write_text("from torch import nn\ndef build(): return nn.Linear(3, 2)\ndef other(): return nn.Linear(3, 2)\n")
    x = ("x", (1, 3))
    found = [
        TorchOpener().open(request_for(f"{path}:build", x)).sha256,
        TorchOpener().open(request_for(f"{path}:other", x)).sha256,
        TorchOpener().open(request_for(f"{path}:build", x, weights=weights)).sha256,
    ]
    path.write_text(path.read_text() + "\n")
    found.append(TorchOpener().open(request_for(f"{path}:build", x)).sha256)
    assert len(set(found)) == 4
    assert all(len(text) == 64 for text in found)


# Refusals: one clear line each (a factory's own traceback excepted).


def test_a_factory_that_raises_shows_the_users_traceback_and_nothing_of_ours(write, request_for):
    path = write("def inner():\n    raise KeyError('no such table')\ndef build():\n    return inner()\n")
    with pytest.raises(SourceError) as caught:
        TorchOpener().open(request_for(f"{path}:build", IMAGE))
    text = str(caught.value)
    assert caught.value.exit_code == 2
    assert "KeyError: 'no such table'" in text
    assert "in inner" in text
    assert "in build" in text
    assert "ipj_edge" not in text.replace("_ipj_edge_factory", "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def build(:\n", "SyntaxError"),
        ("import no_such_package\n", "No module named 'no_such_package'"),
        ("import sys\ndef build(): sys.exit(3)\n", r"called sys.exit\(3\)"),
        ("def other(): pass\n", "no callable 'build' there; it defines other"),
        ("build = 3\n", "no callable 'build'"),
        ("def build(depth): pass\n", r"needs arguments \(depth\)"),
        ("def build(): return {}\n", "returned dict; expected a torch.nn.Module"),
        ("from torch import nn\ndef build(): return nn.Linear(8, 2).double()\n", r"float64.*\.float\(\)"),
    ],
)
def test_a_factory_that_gives_no_model_is_refused(write, request_for, text, message):
    path = write(text)
    with pytest.raises(SourceError, match=message):
        TorchOpener().open(request_for(f"{path}:build", IMAGE))


def test_a_missing_file_a_missing_module_and_a_missing_callable_are_refused(request_for, write):
    path = write("")
    for location, message in (
        ("nowhere.py:build", "no file 'nowhere.py'"),
        ("no_such_package.net:build", "No module named 'no_such_package'"),
        (str(path), "names no callable: write .*:build"),
    ):
        with pytest.raises(SourceError, match=message):
            TorchOpener().open(request_for(location, IMAGE))


def test_undescribed_inputs_are_asked_for_by_the_names_of_forward(open_net):
    with pytest.raises(SourceError) as caught:
        open_net(TWO)
    text = str(caught.value)
    assert "forward(a, b, gain=None)" in text
    assert "--input a:SHAPE --input b:SHAPE" in text
    assert "--input name:shape[:dtype[:range]]" in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            [("a", (1, 2))],
            r"forward\(a, b, gain=None\) does not take the inputs a: missing a required argument: 'b'",
        ),
        ([(name, (1, 2)) for name in "wxyz"], "too many positional arguments"),
        ([("a", (1, 2)), ("a", (1, 2))], "different names"),
        ([("a", (1, 2), "float16"), ("b", (1, 2))], "'a' is float16; a torch source takes float32"),
        ([("a", (1, "n")), ("b", (1, 2))], "has the size 'n': give numbers"),
        ([("a", (1, 2)), ("b", (1, 3))], "the model fails on inputs of 1x2 float32, 1x3 float32: RuntimeError"),
    ],
)
def test_inputs_that_do_not_fit_forward_are_refused_in_one_line(open_net, inputs, message):
    with pytest.raises(SourceError, match=message) as caught:
        open_net(TWO, *inputs)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, "takes the inputs image; got none"),
        ({"picture": np.zeros((1, 1, 8, 8), np.float32)}, "takes the inputs image; got picture"),
        ({"image": np.zeros((1, 1, 8, 8))}, "'image' takes float32; got float64"),
        ({"image": np.zeros((1, 1, 8, 9), np.float32)}, "takes shape batchx1x8x8; got 1x1x8x9"),
        ({"image": np.zeros((1, 8, 8), np.float32)}, "takes shape batchx1x8x8; got 1x8x8"),
    ],
)
def test_feeds_that_do_not_fit_are_refused_with_expected_and_got(nets, request_for, feeds, message):
    source = TorchOpener().open(request_for(f"{nets}:build", IMAGE))
    with pytest.raises(SourceError, match=message):
        source.run(feeds)


def test_a_model_torch_cannot_export_is_refused_in_one_line(open_net):
    with pytest.raises(SourceError, match=r"torch\.export cannot follow this model") as caught:
        open_net(
            "class Net(nn.Module):\n    def forward(self, x): return x if x.sum() > 0 else -x\nbuild = Net\n",
            ("x", (1, 3)),
        )
    assert "\n" not in str(caught.value)


def test_an_operator_onnx_lacks_is_named(open_net):
    from ipj_edge.errors import UnsupportedError

    source = open_net(
        "class Net(nn.Module):\n    def forward(self, x): return torch.special.bessel_j0(x)\nbuild = Net\n",
        ("x", (1, 3)),
    )
    with pytest.raises(UnsupportedError, match="bessel_j0") as caught:
        source.onnx_path()
    assert caught.value.exit_code == 3
    assert any("bessel_j0" in name for name in caught.value.operators)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("location", "accepted"),
    [
        ("net.py:build", True),
        ("some/folder/net.py:build", True),
        ("package.module:callable", True),
        ("net.py", True),
        ("net.onnx", False),
        ("net.pt2", False),
        ("folder/net.tflite", False),
    ],
)
def test_a_factory_is_recognised_by_its_form(location, accepted):
    assert TorchOpener().accepts(location) is accepted
