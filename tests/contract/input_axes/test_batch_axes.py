"""An axis is the batch only where the source shows that it holds samples: through real conversions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ipj_edge
from ipj_edge.errors import ConfigError, DataError, InputError, SourceError

FLOAT = TensorProto.FLOAT
TIME_FIRST = """
def __init__(self):
    super().__init__()
    self.net, self.head = nn.LSTM(6, 10), nn.Linear(10, 3)

def forward(self, x):
    return self.head(self.net(x)[0])
"""


def _forward(expression: str) -> str:
    return f"def forward(self, x):\n    return {expression}"


def _onnx(folder: Path, nodes: list[onnx.NodeProto], size: int | str, width: int = 4) -> Path:
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", FLOAT, [size, width])],
        [helper.make_tensor_value_info("y", FLOAT, [size, width])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "net.onnx")
    return folder / "net.onnx"


def _centred(folder: Path, size: int | str) -> Path:
    """Subtract the mean over axis 0."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0], keepdims=1),
        helper.make_node("Sub", ["x", "mean"], ["y"]),
    ]
    return _onnx(folder, nodes, size)


def _relu(folder: Path, size: int | str) -> Path:
    return _onnx(folder, [helper.make_node("Relu", ["x"], ["y"])], size)


def _draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_a_time_axis_is_not_cut_into_parts(torch_net, bundle_of) -> None:
    bundle = bundle_of(torch_net(TIME_FIRST), "x:9x1x6")
    (spec,), (out,) = bundle.manifest.inputs, bundle.manifest.outputs
    assert (spec.shape, spec.batch_axis, out.batch_axis) == ((9, 1, 6), None, None)
    assert any("mixes what lies along axis 0 of 'x'" in note for note in bundle.manifest.notes)
    with ipj_edge.load(bundle.path) as model:
        assert model.run(_draw(9, 1, 6)).outputs["output"].shape == (9, 1, 3)
        with pytest.raises(InputError, match=r"expected shape \(9, 1, 6\), got \(18, 1, 6\); one size only: .*time"):
            model.run(_draw(18, 1, 6))


@pytest.mark.parametrize("expression", ["x - x.mean(0)", "x.flip(0)", "F.batch_norm(x, None, None, training=True)"])
def test_a_module_that_mixes_its_samples_gets_one_size_with_the_reason(torch_net, bundle_of, expression) -> None:
    bundle = bundle_of(torch_net(_forward(expression)), "x:5x6")
    assert bundle.manifest.inputs[0].batch_axis is None
    with ipj_edge.load(bundle.path) as model, pytest.raises(InputError, match="one size only: the model mixes"):
        model.run(_draw(10, 6))


def test_a_proven_batch_stays_dynamic_whatever_size_was_described(torch_net, bundle_of) -> None:
    bundle = bundle_of(torch_net(_forward("x * 2")), "x:4x6")
    assert (bundle.manifest.inputs[0].shape, bundle.manifest.batch.only_size) == (("batch", 6), "")
    with ipj_edge.load(bundle.path) as model:
        assert model.run(_draw(7, 6)).outputs["output"].shape == (7, 6)


def test_an_output_that_reduces_the_samples_away_is_no_batch(torch_net, bundle_of) -> None:
    bundle = bundle_of(torch_net(_forward("x.sum(0)")), "x:5x6")
    assert (bundle.manifest.inputs[0].batch_axis, bundle.manifest.outputs[0].shape) == (None, (6,))


def test_a_single_sample_that_runs_alone_is_looped(torch_net, bundle_of) -> None:
    x = _draw(8, 6)
    with ipj_edge.load(bundle_of(torch_net(_forward("x.view(1, 6) * 2")), "x:1x6").path) as model:
        np.testing.assert_allclose(model.run(x).outputs["output"], 2 * x, rtol=1e-6)


def test_training_mode_is_named_and_no_wrong_conversion(torch_net, bundle_of) -> None:
    body = """
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(6)

    def train(self, mode=True):
        return super().train(True)

    def forward(self, x):
        return self.norm(x)
    """
    with pytest.raises(SourceError, match=r"mixes its samples and changes its buffers norm\.running_mean.*eval\(\)"):
        bundle_of(torch_net(body), "x:8x6")


COUNTER = """
def __init__(self):
    super().__init__()
    self.register_buffer("calls", torch.zeros(()))

def forward(self, x):
    self.calls += 1
    return x * CALLS
"""


def test_a_module_that_answers_by_what_it_remembers_is_refused(torch_net, bundle_of) -> None:
    with pytest.raises(SourceError, match="changes its buffers calls in forward and answers by them"):
        bundle_of(torch_net(COUNTER.replace("CALLS", "self.calls")), "x:1x6")
    bundle = bundle_of(torch_net(COUNTER.replace("CALLS", "2")), "x:1x6")
    assert any("changes its buffers in forward (calls)" in note for note in bundle.manifest.notes)


def test_a_module_that_draws_random_numbers_is_refused(torch_net, bundle_of) -> None:
    with pytest.raises(SourceError, match="it draws random numbers"):
        bundle_of(torch_net(_forward("F.dropout(x, 0.5, True)")), "x:1x6")


def test_exits_need_samples(torch_net, bundle_of) -> None:
    body = """
    def __init__(self):
        super().__init__()
        self.stages = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6)])
        self.heads = nn.ModuleList([nn.Linear(6, 3), nn.Linear(6, 3)])

    def forward(self, x):
        first = self.stages[0](x - x.mean(0))
        return self.heads[0](first), self.heads[1](self.stages[1](first))
    """
    with pytest.raises(ConfigError, match=r"samples leave at exits one by one, and this model has none: .* mixes"):
        bundle_of(torch_net(body), "x:4x6")


def test_an_open_axis_that_mixes_is_refused_until_its_size_is_given(tmp_path, bundle_of) -> None:
    source = _centred(tmp_path, "N")
    with pytest.raises(SourceError, match=r"mixes what lies along axis 0 .* --input x:SIZEx4, or --max-batch 1"):
        bundle_of(source)
    bundle = bundle_of(source, "x:7x4")
    assert (bundle.manifest.inputs[0].shape, bundle.manifest.inputs[0].batch_axis) == ((7, 4), None)
    x = _draw(7, 4)
    with ipj_edge.load(bundle.path) as model:
        np.testing.assert_allclose(model.run(x).outputs["y"], x - x.mean(0), atol=1e-6)


def test_data_of_another_size_say_why_there_is_one_only(tmp_path, bundle_of) -> None:
    np.savez(tmp_path / "data.npz", x=_draw(20, 4))
    with pytest.raises(DataError, match=r"expected \(9, 4\) \(one size only: the model mixes"):
        bundle_of(_centred(tmp_path, 9), data=str(tmp_path / "data.npz"))


@pytest.mark.parametrize("size", [2, 33, 64, 100])
def test_a_fixed_batch_is_the_only_one_taken_with_data_and_without(tmp_path, bundle_of, size) -> None:
    source = _relu(tmp_path, size)
    np.savez(tmp_path / "data.npz", x=_draw(2 * size + 1, 4))
    for data in (None, str(tmp_path / "data.npz")):
        bundle = bundle_of(source, data=data)
        assert (bundle.manifest.batch.static, bundle.manifest.inputs[0].batch_axis) == (size, 0)
    ipj_edge.verify(bundle.path)
    with ipj_edge.load(bundle.path) as model:
        assert model.run(_draw(size, 4)).outputs["y"].shape == (size, 4)
        for wrong in (1, 2 * size):
            with pytest.raises(InputError, match=f"takes {size} samples, and {wrong} came: the source runs on {size}"):
                model.run(_draw(wrong, 4))
