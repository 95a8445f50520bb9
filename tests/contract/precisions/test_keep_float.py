"""Mixed precision: operators kept in float by name, on every engine, and seen in what is read back."""

from __future__ import annotations

import pytest

from ipj_edge.errors import ConfigError
from ipj_edge_converters.quantization.keep_float import NamedOperator, matching

# How each engine names the middle one of three convolutions, and the kind of all.
MIDDLE = {
    "onnxruntime-cpu": ("Conv node_conv2d_1", "Conv"),
    "openvino-cpu": ("node_conv2d_1/*", "Convolution"),
    "tflite-cpu": ("CONV_2D:*Conv2d_2;1", "CONV_2D"),
}
OPERATORS = (NamedOperator("Conv", "first"), NamedOperator("Conv", "second"), NamedOperator("Gemm", "head/dense"))


@pytest.mark.parametrize("target", MIDDLE)
def test_one_convolution_stays_in_float_and_the_others_do_not(made, images, target):
    pattern, _ = MIDDLE[target]
    plain = made("conv", target, "int8", calibration=str(images), name="plain")
    mixed = made("conv", target, "int8", calibration=str(images), keep_float=(pattern,))
    added = set(mixed.floats) - set(plain.floats)
    assert added, "the read-back does not show it"
    assert sum("conv" in name.lower() and "relu" not in name.lower().rpartition("/")[2] for name in added) >= 1
    assert len(mixed.floats) < mixed.manifest.stages[0].operators.total
    assert mixed.manifest.keep_float == (pattern,)


@pytest.mark.parametrize("target", MIDDLE)
def test_a_kind_of_operator_stays_in_float(made, images, target):
    _, kind = MIDDLE[target]
    mixed = made("conv", target, "int8", calibration=str(images), keep_float=(kind,))
    assert len(mixed.floats) >= 3


@pytest.mark.parametrize("target", MIDDLE)
def test_a_pattern_that_matches_nothing_lists_the_names_there_are(made, images, target):
    conversion = made("conv", target, "int8", calibration=str(images), keep_float=("nosuch*",))
    assert isinstance(conversion.error, ConfigError)
    assert conversion.exit_code == 2
    assert "'nosuch*'" in str(conversion.error)
    assert MIDDLE[target][1] in str(conversion.error)


def test_dynamic_int8_keeps_operators_too(made):
    mixed = made("encoder", "onnxruntime-cpu", scheme="dynamic", keep_float=("MatMul node_MatMul_2",))
    plain = made("encoder", "onnxruntime-cpu", scheme="dynamic", name="plain")
    # Its bias, added inside the integer kernel before, is an operator of its own now.
    assert set(mixed.floats) - set(plain.floats) == {"MatMul node_MatMul_2", "Add node_linear"}


def test_float_bundles_of_the_same_request_are_whole(made, images):
    assert made("conv", "onnxruntime-cpu", "fp32", keep_float=("Conv*",)).manifest.keep_float == ()


def test_bf16_takes_no_single_operators(made):
    assert made("conv", "openvino-cpu", "bf16", keep_float=("Convolution*",)).exit_code == 2


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("first", ["first"]),
        ("Conv", ["first", "second"]),
        ("Conv second", ["second"]),
        ("FusedConv second", ["second"]),
        ("CONV_2D:fir*", ["first"]),
        ("*/dense", ["head/dense"]),
        ("*", ["first", "second", "head/dense"]),
    ],
)
def test_patterns_match_by_name_by_kind_and_as_listed(pattern, names):
    assert [each.name for each in matching((pattern,), OPERATORS)] == names


def test_every_pattern_has_to_match():
    with pytest.raises(ConfigError, match=r"'c\*' matches no operator; there are: Conv first, Conv second, Gemm head"):
        matching(("Conv", "c*"), OPERATORS)
