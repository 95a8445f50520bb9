"""Outputs without a batch axis: the same for every sample, or nobody can say which sample they are of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ipj_edge
from ipj_edge.conversion import ConvertRequest, convert
from ipj_edge.errors import ConfigError, InputError

X = np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32)


def _model(folder: Path, batch: int | str = "N") -> Path:
    """A product, its mean over the batch, and a constant."""
    weights = np.linspace(-1, 1, 30, dtype=np.float32).reshape(6, 5)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("ReduceMean", ["y"], ["mean"], axes=[0], keepdims=0),
        helper.make_node("Identity", ["anchors_"], ["anchors"]),
    ]
    kinds: dict[str, list[int | str]] = {"y": [batch, 5], "mean": [5], "anchors": [2]}
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 6])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in kinds.items()],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.float32([1, 2]), "anchors_")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "net.onnx")
    return folder / "net.onnx"


def _request(folder: Path, max_batch: int) -> ConvertRequest:
    return ConvertRequest(
        source=str(_model(folder)), targets=("onnxruntime-cpu",), into=folder / "out", max_batch=max_batch
    )


def test_an_output_that_mixes_the_samples_of_a_batch_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"output 'mean' has no batch axis .* --max-batch 1"):
        convert(_request(tmp_path, 32))


def test_samples_given_together_do_not_get_the_answer_of_the_first(tmp_path: Path) -> None:
    (outcome,) = convert(_request(tmp_path, 1))
    assert outcome.bundle is not None, outcome.error
    assert outcome.bundle.manifest.batch.probed == (1,)
    with ipj_edge.load(outcome.bundle.path) as model:
        for x in X:
            found = model.run(x).outputs
            np.testing.assert_allclose(found["mean"], found["y"][0], rtol=1e-6)
        with pytest.raises(InputError, match=r"output 'mean' has no batch axis .* at most 1 at once"):
            model.run(X)
        assert model.run(np.repeat(X[:1], 3, axis=0)).outputs["anchors"].tolist() == [1, 2]


def test_golden_batches_of_a_fixed_size_hold_the_samples_that_were_answered_together(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(1).standard_normal((64, 6)).astype(np.float32))
    request = ConvertRequest(
        source=str(_model(tmp_path, 4)),
        targets=("onnxruntime-cpu",),
        into=tmp_path / "out",
        data=str(tmp_path / "data.npz"),
    )
    (outcome,) = convert(request)
    assert outcome.bundle is not None, outcome.error
    assert outcome.bundle.manifest.golden_samples == 8
    ipj_edge.verify(outcome.bundle.path)
