"""Integer inputs beyond what was declared, through real conversions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ipj_edge
from ipj_edge.errors import DataError, InputError

EMBEDDING = """
def __init__(self):
    super().__init__()
    self.table = nn.Embedding(50, 6)
    self.types = nn.Embedding(2, 6)
    self.head = nn.Linear(6, 3)

def forward(self, ids, types):
    return self.head((self.table(ids) + self.types(types)).mean(1))
"""
INPUTS = ("ids:1x7:int64", "types:1x7:int64")


def _feeds(ids: int, kind: int = 1) -> dict[str, np.ndarray]:
    return {"ids": np.full((1, 7), ids), "types": np.full((1, 7), kind)}


def test_undeclared_ids_take_the_rows_of_the_tables_they_index(torch_net, bundle_of) -> None:
    bundle = bundle_of(torch_net(EMBEDDING), *INPUTS)
    assert [spec.value_range for spec in bundle.manifest.inputs] == [(0, 49), (0, 1)]
    with np.load(bundle.path / "golden.npz") as golden:
        assert golden["in/ids"].min() == 0
    with ipj_edge.load(bundle.path) as model:
        assert np.isfinite(model.run(_feeds(49)).outputs["output"]).all()
        for feeds in (_feeds(50), _feeds(-1), _feeds(3, 2)):
            with pytest.raises(InputError, match="allow_out_of_range"):
                model.run(feeds)


@pytest.mark.parametrize("target", ["openvino-cpu", "tflite-cpu"])
def test_every_engine_refuses_ids_its_tables_do_not_have(torch_net, bundle_of, target) -> None:
    bundle = bundle_of(torch_net(EMBEDDING), *INPUTS, target=target)
    with ipj_edge.load(bundle.path) as model, pytest.raises(InputError, match="'ids' holds 50"):
        model.run(_feeds(50))


def test_a_declared_range_wins_and_the_caller_may_go_beyond_it(torch_net, bundle_of) -> None:
    bundle = bundle_of(torch_net(EMBEDDING), "ids:1x7:int64:0..9", INPUTS[1])
    assert bundle.manifest.inputs[0].value_range == (0, 9)
    with ipj_edge.load(bundle.path) as model, pytest.raises(InputError, match="takes 0 to 9 only"):
        model.run(_feeds(10))
    with ipj_edge.load(bundle.path, allow_out_of_range=True) as model:
        assert model.run(_feeds(10)).outputs["output"].shape == (1, 3)
        assert model.clone().run(_feeds(10)).outputs["output"].shape == (1, 3)


def test_numbers_openvino_cannot_hold_are_refused_even_when_out_of_range_is_allowed(torch_net, bundle_of) -> None:
    bundle = bundle_of(
        torch_net("def forward(self, n):\n    return n * 2"), "n:1x4:int64:0..1000", target="openvino-cpu"
    )
    with ipj_edge.load(bundle.path, allow_out_of_range=True) as model, pytest.raises(InputError, match="32 bits"):
        model.run(np.full((1, 4), 2**33))


def test_the_command_line_refuses_and_allows(torch_net, bundle_of, ipj_edge_cli, tmp_path) -> None:
    bundle = bundle_of(torch_net(EMBEDDING), "ids:1x7:int64:0..9", INPUTS[1])
    np.savez(tmp_path / "beyond.npz", **_feeds(10))
    refused = ipj_edge_cli("run", bundle.path, tmp_path / "beyond.npz")
    assert (refused.code, "--allow-out-of-range" in refused.err) == (2, True)
    assert ipj_edge_cli("run", bundle.path, tmp_path / "beyond.npz", "--allow-out-of-range").code == 0


def _gather(folder: Path) -> Path:
    """Look ids up in a table of nine rows, through Cast and Unsqueeze; another input is only added."""
    nodes = [
        helper.make_node("Cast", ["ids"], ["ids32"], to=TensorProto.INT32),
        helper.make_node("Unsqueeze", ["ids32", "axes"], ["column"]),
        helper.make_node("Gather", ["table", "column"], ["rows"]),
        helper.make_node("Add", ["rows", "shift_"], ["y"]),
        helper.make_node("Cast", ["shift"], ["shift_"], to=TensorProto.FLOAT),
    ]
    nodes = [nodes[index] for index in (0, 1, 2, 4, 3)]
    table = np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32)
    graph = helper.make_graph(
        nodes,
        "net",
        [
            helper.make_tensor_value_info("ids", TensorProto.INT64, ["N"]),
            helper.make_tensor_value_info("shift", TensorProto.INT64, ["N", 1, 1]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 1, 4])],
        [numpy_helper.from_array(table, "table"), numpy_helper.from_array(np.array([1]), "axes")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "net.onnx")
    return folder / "net.onnx"


def test_what_no_table_bounds_takes_what_the_data_hold_and_says_so(tmp_path, bundle_of) -> None:
    np.savez(tmp_path / "data.npz", ids=np.array([1, 2, 3, 4]), shift=np.arange(4).reshape(4, 1, 1))
    bundle = bundle_of(_gather(tmp_path), data=str(tmp_path / "data.npz"))
    assert [spec.value_range for spec in bundle.manifest.inputs] == [(0, 8), (0, 3)]
    assert any("'shift' takes 0 to 3, as the data given" in note for note in bundle.manifest.notes)
    with ipj_edge.load(bundle.path) as model, pytest.raises(InputError, match="'shift' holds 4"):
        model.run({"ids": np.array([8]), "shift": np.full((1, 1, 1), 4)})


def test_indices_from_the_end_of_a_table_are_right_when_the_data_have_them(tmp_path, bundle_of) -> None:
    np.savez(tmp_path / "data.npz", ids=np.array([-9, 2, 3, 8]), shift=np.arange(4).reshape(4, 1, 1))
    bundle = bundle_of(_gather(tmp_path), data=str(tmp_path / "data.npz"))
    assert bundle.manifest.inputs[0].value_range == (-9, 8)


def test_data_outside_the_declared_range_are_refused_before_anything_is_built(tmp_path, bundle_of) -> None:
    np.savez(tmp_path / "data.npz", ids=np.array([1, 2, 3, 8]), shift=np.arange(4).reshape(4, 1, 1))
    with pytest.raises(DataError, match="'ids' runs from 1 to 8, declared is 0 to 5"):
        bundle_of(_gather(tmp_path), "ids:1:int64:0..5", data=str(tmp_path / "data.npz"))
