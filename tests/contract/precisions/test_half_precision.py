"""bf16 on OpenVINO and float16 weights on TFLite: what the file holds and what the engine computes in."""

from __future__ import annotations

import numpy as np
import pytest

import ipj_edge
from ipj_edge import host
from ipj_edge.bundles.manifest import OutputParity
from ipj_edge.runtime.parity import compare
from ipj_edge.values import TensorSpec
from ipj_edge_converters.tflite import file as tflite_file

BF16 = {"avx512_bf16", "amx_bf16"}


def test_openvino_computes_a_bf16_bundle_in_bf16_and_says_so(made):
    conversion = made("conv", "openvino-cpu", "bf16")
    if conversion.exit_code:  # engines of some versions compute bf16 on CPUs without it too
        assert not host.cpu_flags() & BF16, conversion.error
        assert conversion.exit_code == 6, conversion.error
        assert "execution precision: bf16 was asked for" in str(conversion.error)
        return
    with ipj_edge.load(conversion.path) as model:
        (effective,) = model.effective
    assert effective.execution_precision == "bf16"
    assert "execution_precision" in effective.read_back
    assert 1e-5 < worst(conversion.manifest.parity.outputs) < 2e-2, "bf16 rounds, and not more than that"
    assert any("bfloat16" in note for note in conversion.manifest.notes)


def worst(figures: tuple[OutputParity, ...]) -> float:
    return max(each.relative_l2 for each in figures)


def test_tflite_stores_float16_weights_and_computes_in_float32(made):
    half, full = made("conv", "tflite-cpu", "fp16"), made("conv", "tflite-cpu", "fp32")
    (stage,), (wide,) = half.manifest.stages, full.manifest.stages
    assert stage.file_bytes < 0.7 * wide.file_bytes
    model = tflite_file.parse((half.path / stage.file).read_bytes())
    assert "float16" in {tflite_file.dtype_of(tensor) for tensor in model.subgraphs[0].tensors}
    assert any("computes in float32" in note for note in half.manifest.notes)
    with ipj_edge.load(half.path) as loaded:
        assert loaded.effective[0].execution_precision == "f32"


@pytest.mark.parametrize(("precision", "dead"), [("fp32", True), ("fp16", False), ("bf16", False)])
def test_answers_closer_than_a_step_of_half_precision_may_round_to_one(precision, dead):
    spec = TensorSpec(name="y", shape=("batch", 2), dtype="float32")
    want = np.array([[1.0, 5.0], [1.0004, 6.0]], np.float32)
    got = np.array([[1.0, 5.0], [1.0, 6.0]], np.float32)
    (compared,) = compare((spec,), {"y": want}, {"y": got}, precision=precision, inputs="random", tolerance=1e-2)
    assert ("constant" in " ".join(compared.failures)) is dead
