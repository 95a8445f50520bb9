"""From torch to the Edge TPU: one scale for each dense layer, spelled as the compiler of 2021 reads it."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

from ipj_edge.bundles.bundle import open_bundle
from ipj_edge.bundles.placement import read_placement
from ipj_edge.conversion import ConvertRequest, convert
from ipj_edge.conversion.plan.request import take_options
from ipj_edge.errors import DataError
from ipj_edge_converters.tflite import file as tflite_file

pytestmark = pytest.mark.slow
_NET = """
import torch

def build():
    torch.manual_seed(0)
    dense = torch.nn.Linear(48, 5)
    with torch.no_grad():
        dense.weight[0] *= 20  # a scale per channel would differ
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(), dense
    )
"""


@pytest.fixture
def request_(tmp_path):
    (tmp_path / "net.py").write_text(textwrap.dedent(_NET))
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "cal.npz", image=rng.normal(size=(40, 3, 6, 8)).astype(np.float32))

    def made(**options):
        return ConvertRequest(
            source=f"{tmp_path / 'net.py'}:build", targets=("edgetpu",), into=tmp_path / "dist",
            inputs=_inputs(), options=take_options(options), **options,
        )  # fmt: skip

    return made


def _inputs():
    from ipj_edge.values import TensorSpec

    return (TensorSpec(name="image", shape=(1, 3, 6, 8), dtype="float32"),)


def test_full_int8_is_made_without_being_asked_for_by_name(request_, tmp_path):
    (outcome,) = convert(request_(calibration=str(tmp_path / "cal.npz")))
    assert outcome.error is None, outcome.error
    manifest = open_bundle(outcome.bundle.path).manifest
    assert manifest.precision == "int8"
    assert manifest.parity.verified_on == "proxy:tflite-cpu"
    assert manifest.stages[0].operators.float_operators == ()
    model = tflite_file.parse((outcome.bundle.path / "model.tflite").read_bytes())
    names = tflite_file.operator_names(model)
    graph = model.subgraphs[0]
    (dense,) = [each for each in graph.operators if names[each.opcodeIndex] == "FULLY_CONNECTED"]
    assert len(graph.tensors[dense.inputs[1]].quantization.scale) == 1
    assert model.operatorCodes[dense.opcodeIndex].version == 4
    assert not dense.builtinOptions.keepNumDims
    assert read_placement(outcome.bundle.path).share() == 1


def test_int8_needs_calibration_data_here_as_well(request_):
    (outcome,) = convert(request_())
    assert isinstance(outcome.error, DataError)
    assert "--calibration" in str(outcome.error)
