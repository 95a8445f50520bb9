"""A precision, and an operator kept in float, are read back from the file: a request without effect is an error."""

from __future__ import annotations

import pytest

from ipj_edge.errors import ConfigError, UnsupportedError
from ipj_edge.values import TensorSpec
from ipj_edge_converters.quantization.promised import check_half, share_note

X = (TensorSpec(name="x", shape=(1, 8), dtype="float32"),)
DENSE = """
import torch
from torch import nn

def dense():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 5))

class Product(nn.Module):
    def __init__(self, head):
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(1, 8, 16))
        self.head = nn.Linear(16, 5) if head else nn.Identity()
    def forward(self, x):
        return self.head(torch.matmul(x[:, None], self.weight)[:, 0])

def product():
    return Product(False)

def partly():
    return Product(True)
"""


@pytest.fixture
def factory(tmp_path):
    path = tmp_path / "nets.py"
    path.write_text(DENSE)
    return lambda name: f"{path}:{name}"


@pytest.mark.parametrize("target", ["onnxruntime-cpu", "tflite-cpu"])
def test_a_linear_layer_with_a_bias_stays_in_float_where_asked(made, factory, target):
    plain = made(factory("dense"), target, scheme="dynamic", inputs=X, name="plain")
    pattern = {"onnxruntime-cpu": ("*linear_1*",), "tflite-cpu": ("*output_0*",)}[target]
    mixed = made(factory("dense"), target, scheme="dynamic", inputs=X, keep_float=pattern)
    assert set(mixed.floats) - set(plain.floats), "the read-back does not show it"


@pytest.mark.parametrize(("target", "kind"), [("onnxruntime-cpu", "Gemm"), ("tflite-cpu", "FULLY_CONNECTED")])
def test_keeping_everything_in_float_is_refused(made, factory, target, kind):
    conversion = made(factory("dense"), target, scheme="dynamic", inputs=X, keep_float=(kind,))
    assert isinstance(conversion.error, UnsupportedError)
    assert "--keep-float leaves nothing to quantize" in str(conversion.error)


def test_keeping_what_is_float_anyway_is_an_error(made, factory):
    conversion = made(factory("dense"), "onnxruntime-cpu", scheme="dynamic", inputs=X, keep_float=("Relu",))
    assert isinstance(conversion.error, ConfigError)
    assert "has no effect" in str(conversion.error)


def test_float16_that_changes_nothing_is_refused(made, factory):
    conversion = made(factory("product"), "tflite-cpu", "fp16", inputs=X)
    assert isinstance(conversion.error, UnsupportedError)
    assert conversion.exit_code == 3
    assert "fp16 changes nothing" in str(conversion.error)


def test_float16_of_a_part_states_its_share(made, factory):
    notes = made(factory("partly"), "tflite-cpu", "fp16", inputs=X).manifest.notes
    assert any("% of the weights are stored in float16" in note for note in notes)
    assert not any("half the bytes" in note for note in notes)


def test_the_share_is_of_float_weights():
    assert check_half({"float16": 30, "float32": 10, "int32": 99}) == 0.75
    assert share_note(0.75) == ("75.0% of the weights are stored in float16; the rest stays float32",)
    assert share_note(1.0) == ()
    assert check_half({"float16": 3}) == 1.0


@pytest.mark.parametrize("weights", [{"float32": 8}, {}, {"int8": 3}])
def test_a_file_without_float16_is_refused(weights):
    with pytest.raises(UnsupportedError, match="fp16 changes nothing"):
        check_half(weights)


def test_operators_may_compute_in_float16_without_weights():
    assert check_half({}, operators_too=True) == 1.0
