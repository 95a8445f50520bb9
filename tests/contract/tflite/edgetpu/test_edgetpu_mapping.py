"""The static mapping report: each published limit on a graph that breaks it, and the real compiled pairs."""

from __future__ import annotations

import numpy as np
import pytest

from ipj_edge.bundles.placement import Placement
from ipj_edge.errors import UnsupportedError
from ipj_edge_converters.edgetpu.convert import _further_subgraphs_note, check_share
from ipj_edge_converters.edgetpu.limits import (
    DATA_TYPE,
    DYNAMIC,
    NOT_CONSTANT,
    NOT_SUPPORTED,
    RANK,
    SECOND_SUBGRAPH,
    VERSION,
)
from ipj_edge_converters.edgetpu.mapping import predict
from ipj_edge_converters.tflite import file as tflite_file
from ipj_edge_converters.tflite.numbers import read_numbers
from ipj_edge_converters.tflite.operators import custom_operators

SHAPE = (1, 4, 6, 3)


def predicted(builder) -> Placement:
    return predict(tflite_file.parse(builder.bytes()))


class Chain:
    """Operators one after the other over int8 tensors of one shape."""

    def __init__(self, builder, shape=SHAPE, dtype="INT8"):
        self.builder, self.shape, self.dtype, self.count = builder, shape, dtype, 0
        self.first = self.last = self.made()

    def made(self, shape=None, dtype=None):
        self.count += 1
        return self.builder.tensor(f"t{self.count}", shape or self.shape, dtype or self.dtype, scale=0.5)

    def then(self, kind, *more, shape=None, dtype=None, **options):
        before, self.last = self.last, self.made(shape, dtype)
        self.builder.operator(kind, (before, *more), (self.last,), **options)
        return self

    def placement(self) -> Placement:
        self.builder.ends((self.first,), (self.last,))
        return predicted(self.builder)


def test_a_supported_chain_is_mapped_whole(builder):
    placement = Chain(builder).then("RELU").then("LOGISTIC").then("TANH").placement()
    assert placement.share() == 1
    assert placement.found_by == "table"


def test_what_comes_after_an_unsupported_operator_stays_on_the_host(builder):
    placement = Chain(builder).then("RELU").then("LEAKY_RELU").then("TANH").then("RELU").placement()
    assert [each.accelerated for each in placement.operators] == [True, False, False, False]
    assert [each.reason for each in placement.operators] == ["", NOT_SUPPORTED, SECOND_SUBGRAPH, SECOND_SUBGRAPH]


def test_dilated_depthwise_convolutions_are_mapped(builder):
    """The real compiler maps those of DeepLab."""
    assert depthwise(builder, Chain(builder), 2, 2).placement().share() == 1


def test_what_could_run_after_a_break_is_numbered_as_a_further_subgraph(builder):
    chain = Chain(builder).then("RELU").then("LEAKY_RELU").then("TANH").then("ABS").then("RELU").then("TANH")
    placement = chain.placement()
    assert [each.subgraph for each in placement.operators] == [1, None, 2, None, 3, 3]
    assert placement.in_further_subgraphs() == 3
    assert placement.subgraphs == 1
    assert "3 operators" in _further_subgraphs_note(placement)[0]
    assert "subgraphs 2 to 3" in _further_subgraphs_note(placement)[0]


def test_a_model_mapped_whole_says_nothing_of_further_subgraphs(builder):
    assert _further_subgraphs_note(Chain(builder).then("RELU").placement()) == ()


def test_uint8_operators_without_weights_are_int8(builder):
    chain = Chain(builder, dtype="UINT8").then("RELU").then("TANH")
    chain.builder.ends((chain.first,), (chain.last,))
    assert read_numbers(tflite_file.parse(builder.bytes())).precision == "int8"


def test_moved_bytes_beside_float_operators_are_not_int8(builder):
    chain = Chain(builder, dtype="UINT8").then("RESHAPE").then("CAST", dtype="FLOAT32").then("TANH", dtype="FLOAT32")
    chain.builder.ends((chain.first,), (chain.last,))
    assert read_numbers(tflite_file.parse(builder.bytes())).precision == "fp32"


def test_an_unsupported_first_operator_does_not_cost_the_rest(builder):
    placement = Chain(builder).then("LEAKY_RELU").then("RELU").then("TANH").placement()
    assert [each.accelerated for each in placement.operators] == [False, True, True]


def test_a_branch_beside_an_unsupported_operator_is_mapped(builder):
    chain = Chain(builder).then("RELU")
    fork = chain.last
    chain.then("ABS")
    aside = chain.made()
    builder.operator("TANH", (fork,), (aside,))
    builder.ends((chain.first,), (chain.last, aside))
    placement = predicted(builder)
    assert {each.type: each.accelerated for each in placement.operators} == {"RELU": True, "ABS": False, "TANH": True}


def constant(builder, shape, value=1, dtype="INT8", **options):
    data = np.full(shape, value, {"INT8": np.int8, "INT32": np.int32}[dtype])
    return builder.tensor("constant", shape, dtype, data=data, **({"scale": 0.5} if dtype == "INT8" else {}), **options)


def numbers(builder, *values):
    return builder.tensor("numbers", (len(values),), "INT32", data=np.array(values, np.int32))


def conv(builder, chain, **options):
    plain = {"strideW": 1, "strideH": 1, "dilationWFactor": 1, "dilationHFactor": 1, **options}
    weights, bias = constant(builder, (3, 1, 1, 3)), constant(builder, (3,), dtype="INT32")
    return chain.then("CONV_2D", weights, bias, options=("Conv2DOptions", plain))


def refuse_second_dilation(builder, chain):
    return conv(builder, chain, dilationWFactor=2)


def depthwise(builder, chain, across, down):
    plain = {"strideW": 1, "strideH": 1, "dilationWFactor": across, "dilationHFactor": down, "depthMultiplier": 1}
    weights, bias = constant(builder, (1, 1, 1, 3)), constant(builder, (3,), dtype="INT32")
    return chain.then("DEPTHWISE_CONV_2D", weights, bias, options=("DepthwiseConv2DOptions", plain))


def refuse_second_dilation_of_depthwise(builder, chain):
    return depthwise(builder, chain, 2, 1)


def refuse_pool_with_activation(builder, chain):
    options = {"strideW": 1, "strideH": 1, "filterWidth": 1, "filterHeight": 1, "fusedActivationFunction": 1}
    return chain.then("AVERAGE_POOL_2D", options=("Pool2DOptions", options))


def refuse_per_channel_dense(builder, chain):
    data = np.ones((2, 72), np.int8)
    weights = builder.tensor("weights", (2, 72), "INT8", data=data, scale=[0.5, 0.25])
    options = ("FullyConnectedOptions", {})
    return chain.then("FULLY_CONNECTED", weights, constant(builder, (2,), dtype="INT32"), shape=(1, 2), options=options)


def refuse_dense_over_rows(builder, chain):
    return chain.then("FULLY_CONNECTED", constant(builder, (2, 3)), shape=(4, 2), options=("FullyConnectedOptions", {}))


def refuse_variable_weights(builder, chain):
    weights = chain.made((1, 1, 1, 3))
    plain = {"strideW": 1, "strideH": 1, "dilationWFactor": 1, "dilationHFactor": 1}
    return chain.then("CONV_2D", weights, shape=(1, 4, 6, 1), options=("Conv2DOptions", plain))


def refuse_padded_batch(builder, chain):
    amounts = builder.tensor("amounts", (4, 2), "INT32", data=np.array([[1, 0], [0, 0], [0, 0], [0, 0]], np.int32))
    return chain.then("PAD", amounts)


def refuse_softmax_over_rows(builder, chain):
    return chain.then("SOFTMAX", options=("SoftmaxOptions", {}))


def refuse_strides(builder, chain):
    return chain.then(
        "STRIDED_SLICE", numbers(builder, 0, 0, 0, 0), numbers(builder, 1, 4, 6, 3), numbers(builder, 1, 2, 1, 1),
        shape=(1, 2, 6, 3), options=("StridedSliceOptions", {}),
    )  # fmt: skip


def refuse_float_numbers(builder, chain):
    return chain.then("ADD", constant(builder, SHAPE), dtype="FLOAT32", options=("AddOptions", {}))


def refuse_new_version(builder, chain):
    return chain.then("RELU", version=9)


def refuse_fourth_dimension(builder, chain):
    return chain.then("RESHAPE", shape=(2, 2, 6, 3))


def refuse_other_axis_of_squeeze(builder, chain):
    return chain.then("RESHAPE", shape=(4, 1, 3)).then("SQUEEZE", shape=(4, 3), options=("SqueezeOptions", {}))


@pytest.mark.parametrize(
    ("breaks", "reason"),
    [
        (refuse_second_dilation, "dilation differs"),
        (refuse_second_dilation_of_depthwise, "dilation differs"),
        (refuse_pool_with_activation, "fused activation"),
        (refuse_per_channel_dense, "scale per channel"),
        (refuse_dense_over_rows, "more than one dimension"),
        (refuse_variable_weights, NOT_CONSTANT),
        (refuse_padded_batch, "padding in the batch"),
        (refuse_softmax_over_rows, "more than one dimension"),
        (refuse_strides, "strides of 1"),
        (refuse_float_numbers, DATA_TYPE),
        (refuse_new_version, VERSION),
        (refuse_fourth_dimension, RANK),
        (refuse_other_axis_of_squeeze, "leading dimensions"),
    ],
)
def test_each_published_limit_is_known(builder, breaks, reason):
    placement = breaks(builder, Chain(builder)).placement()
    assert not placement.operators[-1].accelerated
    assert reason in placement.operators[-1].reason


def test_a_softmax_of_sixteen_thousand_is_the_largest(builder):
    placement = Chain(builder, (1, 16001)).then("SOFTMAX", options=("SoftmaxOptions", {})).placement()
    assert "16,000" in placement.operators[0].reason


def test_a_convolution_within_the_limits_is_mapped(builder):
    assert conv(builder, Chain(builder)).placement().share() == 1


def test_open_sizes_are_not_supported(builder):
    x = builder.tensor("x", (1, 1, 3), "INT8", scale=0.5, open_axes=(1,))
    y = builder.tensor("y", (1, 1, 3), "INT8", scale=0.5, open_axes=(1,))
    builder.operator("RELU", (x,), (y,))
    builder.ends((x,), (y,))
    assert predicted(builder).operators[0].reason.startswith(DYNAMIC)


def test_conversions_at_the_border_do_not_count(builder):
    x, y = builder.tensor("x", (1, 3)), builder.tensor("y", (1, 3))
    inside, outside = (builder.tensor(name, (1, 3), "INT8", scale=0.5) for name in ("inside", "outside"))
    builder.operator("QUANTIZE", (x,), (inside,))
    builder.operator("TANH", (inside,), (outside,))
    builder.operator("DEQUANTIZE", (outside,), (y,))
    builder.ends((x,), (y,))
    placement = predicted(builder)
    assert [each.at_border for each in placement.operators] == [True, False, True]
    assert placement.share() == 1
    check_share(placement, None)


def test_too_few_mapped_operators_are_refused_with_the_first_one_and_the_price(builder):
    placement = Chain(builder).then("RELU").then("LEAKY_RELU").then("TANH").then("RELU").placement()
    with pytest.raises(UnsupportedError, match=r"1 of 4 operators.*LEAKY_RELU 't3': Operation not supported") as caught:
        check_share(placement, None)
    assert caught.value.exit_code == 3
    assert "--min-mapped 25%" in str(caught.value)
    assert caught.value.operators == ("LEAKY_RELU", "TANH", "RELU")
    check_share(placement, 0.25)
    with pytest.raises(UnsupportedError):
        check_share(placement, 0.26)


def test_nothing_mapped_is_refused_whatever_is_accepted(builder):
    placement = Chain(builder).then("LEAKY_RELU").then("ABS").placement()
    with pytest.raises(UnsupportedError, match="0 of 2 operators"):
        check_share(placement, 0.0)


@pytest.mark.data
@pytest.mark.parametrize("name", ["keras_lstm_mnist_ptq", "mobilenet_v1_0.25_128_quant"])
def test_the_prediction_agrees_with_what_the_real_compiler_made(data_folder, name):
    """Both files of each pair come from Coral; the compiled one holds one operator, so all of it was mapped."""
    whole, compiled = (
        tflite_file.parse((data_folder / f"models/coral/{name}{suffix}.tflite").read_bytes())
        for suffix in ("", "_edgetpu")
    )
    assert custom_operators(compiled) == ("edgetpu-custom-op",)
    assert [len(graph.operators) for graph in compiled.subgraphs] == [1]
    placement = predict(whole)
    assert all(each.accelerated for each in placement.operators)
