from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from ipj_edge.errors import ConversionError, DataError, UnsupportedError
from ipj_edge.plugins import CONVERTERS, load
from ipj_edge.values import Port, Quantization, TensorSpec
from ipj_edge_converters.tflite import file as tflite_file
from ipj_edge_converters.tflite.convert import check_coverage


@pytest.fixture
def conv_net(net_source, spec):
    """A convolution, a batch norm with real statistics and a linear layer; H, W and C differ."""
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(8)
    norm.running_mean.uniform_(-1, 1)
    norm.running_var.uniform_(0.5, 2)
    return net_source(
        lambda conv, norm, line, x: (line(torch.relu(norm(conv(x))).flatten(1)),),
        nn.Conv2d(3, 8, 3, padding=1),
        norm,
        nn.Linear(8 * 5 * 7, 4),
        inputs=(spec("image", 3, 5, 7),),
        outputs=("logits",),
    )


@pytest.fixture
def depthwise_net(net_source, spec):
    """A depthwise convolution whose channels differ a hundredfold in size."""
    torch.manual_seed(0)
    depthwise = nn.Conv2d(6, 6, 3, padding=1, groups=6)
    with torch.no_grad():
        depthwise.weight.mul_(torch.tensor([1, 0.01, 1, 0.1, 1, 10.0]).reshape(6, 1, 1, 1))
    return net_source(
        lambda depthwise, x: (depthwise(x),), depthwise, inputs=(spec("image", 6, 4, 9),), outputs=("map",)
    )


@pytest.fixture
def crossed_net(net_source, spec):
    """Two inputs of one shape and two outputs of one shape, each made of both."""
    return net_source(
        lambda first, second: (second - 2 * first, 3 * first + second),
        inputs=(spec("left", 5, 8), spec("right", 5, 8)),
        outputs=("difference", "total"),
    )


@pytest.fixture
def token_net(net_source, spec):
    """Token ids and a gate in, gated features and probabilities out."""
    torch.manual_seed(0)
    return net_source(
        lambda table, line, ids, gate: (
            line(table(ids).mean(1)) * gate,
            torch.softmax(line(table(ids).sum(1)), -1),
        ),
        nn.Embedding(50, 8),
        nn.Linear(8, 4),
        inputs=(spec("ids", 6, dtype="int64"), spec("gate", 4)),
        outputs=("features", "probabilities"),
    )


@pytest.mark.parametrize("name", ["conv_net", "depthwise_net", "crossed_net", "token_net"])
def test_a_net_answers_as_torch_does_in_fp32(request, converted, samples, name):
    source = request.getfixturevalue(name)
    errors = converted(source).relative_l2(samples(source, 8))
    assert all(error < 1e-4 for error in errors.values()), errors


@pytest.mark.parametrize("name", ["conv_net", "depthwise_net", "crossed_net", "token_net"])
def test_a_net_answers_nearly_as_torch_does_in_int8(request, converted, samples, name):
    source = request.getfixturevalue(name)
    errors = converted(source, "int8", samples(source, 60)).relative_l2(samples(source, 20, seed=2))
    assert all(error < 0.05 for error in errors.values()), errors


def test_the_plugin_is_registered():
    converter = load(CONVERTERS, "to-tflite")
    assert (converter.form, converter.targets, converter.precisions) == (
        "torch",
        ("tflite-cpu",),
        ("fp32", "fp16", "int8"),
    )


def test_ports_carry_the_sources_names_and_the_files_shapes(converted, conv_net):
    files = converted(conv_net).files
    (image,), (logits,) = files.takes, files.adds
    assert (image.name, image.shape, image.dtype, image.quantization) == ("image", (1, 3, 5, 7), "float32", None)
    assert (logits.name, logits.shape, logits.dtype) == ("logits", (1, 4), "float32")
    assert files.static_batch == 1
    assert {"torch", "litert-torch", "ai-edge-litert"} <= set(files.versions)


def test_a_channels_last_input_stays_channels_last(converted, net_source, spec, samples):
    torch.manual_seed(0)
    source = net_source(
        lambda conv, x: (conv(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1),),
        nn.Conv2d(3, 8, 3, padding=1),
        inputs=(spec("image", 5, 7, 3),),
    )
    made = converted(source)
    assert made.files.takes[0].shape == (1, 5, 7, 3)
    assert made.relative_l2(samples(source, 8))["y"] < 1e-4


def test_an_input_handed_through_is_not_mistaken_for_another(converted, net_source, spec, samples):
    source = net_source(
        lambda first, second: (second, first * 2, second),
        inputs=(spec("left", 5), spec("right", 5)),
        outputs=("right_again", "doubled", "right_once_more"),
    )
    assert max(converted(source).relative_l2(samples(source, 4)).values()) == 0


def test_int8_inputs_and_outputs_are_int8_with_one_scale_each(converted, crossed_net, samples):
    made = converted(crossed_net, "int8", samples(crossed_net, 20))
    for port in (*made.files.takes, *made.files.adds):
        assert port.dtype == "int8"
        assert port.quantization is not None
        assert port.quantization.scale > 0
    assert made.files.operators.total > 0
    assert made.files.operators.float_operators == ()


def test_token_ids_stay_integers_in_int8(converted, token_net, samples):
    made = converted(token_net, "int8", samples(token_net, 20))
    ids, gate = made.files.takes
    assert (ids.name, ids.dtype, ids.quantization) == ("ids", "int64", None)
    assert (gate.name, gate.dtype) == ("gate", "int8")
    # ai-edge-quantizer has no static int8 for table look-ups; the file says so.
    assert [name.split(":")[0] for name in made.files.operators.float_operators] == ["EMBEDDING_LOOKUP"]


def test_int8_probabilities_sum_to_one(converted, token_net, samples):
    made = converted(token_net, "int8", samples(token_net, 40))
    sums = made.run(samples(token_net, 20, seed=3))["probabilities"].sum(-1)
    assert np.abs(sums - 1).max() < 0.03
    assert made.files.adds[1].quantization == Quantization(scale=1 / 256, zero_point=-128)


def test_convolution_weights_have_a_scale_per_channel(converted, depthwise_net, samples):
    model = tflite_file.parse(converted(depthwise_net, "int8", samples(depthwise_net, 20)).data)
    (graph,), codes = model.subgraphs, tflite_file.operator_names(model)
    (depthwise,) = [op for op in graph.operators if codes[op.opcodeIndex] == "DEPTHWISE_CONV_2D"]
    assert len(graph.tensors[depthwise.inputs[1]].quantization.scale) == 6


def test_a_batched_matrix_product_does_not_answer_a_constant_in_int8(converted, net_source, spec, samples):
    # Its kernel knows one scale; with one per column the answer was constant.
    torch.manual_seed(0)
    weights = torch.randn(1, 2, 8, 4) * torch.tensor([1, 10, 100, 0.1])
    source = net_source(lambda x: (x @ weights,), inputs=(spec("x", 2, 5, 8),))
    made = converted(source, "int8", samples(source, 40))
    assert made.relative_l2(samples(source, 20, seed=2))["y"] < 0.05


class Attention(nn.Module):
    """Token and position tables, one transformer layer, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(50, 32), nn.Embedding(12, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0, activation="gelu", batch_first=True)
        self.line = nn.Linear(32, 5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.line(self.layer(self.tokens(ids) + self.positions(torch.arange(12))).mean(1))


@pytest.mark.parametrize(("precision", "allowed"), [("fp32", 1e-4), ("int8", 0.06)])
def test_a_transformer_over_token_ids_converts(converted, net_source, spec, samples, precision, allowed):
    torch.manual_seed(0)
    source = net_source(lambda inner, ids: (inner(ids),), Attention(), inputs=(spec("ids", 12, dtype="int64"),))
    made = converted(source, precision, samples(source, 60) if precision == "int8" else None)
    assert made.files.takes[0].dtype == "int64"
    assert made.relative_l2(samples(source, 10, seed=2))["y"] < allowed


def test_an_output_that_also_feeds_a_float_operator_stays_int8(converted, net_source, spec, samples):
    # ai-edge-quantizer makes its float copy the output and forgets the signature.
    torch.manual_seed(0)
    source = net_source(
        lambda line, x: (line(x), torch.argmax(line(x), -1)),
        nn.Linear(8, 10),
        inputs=(spec("x", 8),),
        outputs=("logits", "label"),
    )
    made = converted(source, "int8", samples(source, 40))
    assert [port.dtype for port in made.files.adds] == ["int8", "int64"]
    wanted, found = source.run(samples(source, 20, seed=2)), made.run(samples(source, 20, seed=2))
    assert np.mean(wanted["label"] == found["label"]) >= 0.9
    assert made.relative_l2(samples(source, 20, seed=2))["logits"] < 0.05


def test_operators_left_in_floating_point_are_named(converted, net_source, spec, samples):
    torch.manual_seed(0)
    source = net_source(lambda line, x: (line(torch.sin(x)),), nn.Linear(8, 4), inputs=(spec("x", 8),))
    operators = converted(source, "int8", samples(source, 20)).files.operators
    assert (operators.total, [name.split(":")[0] for name in operators.float_operators]) == (2, ["SIN"])


def test_every_operator_of_an_fp32_file_is_a_float_operator(converted, conv_net):
    operators = converted(conv_net).files.operators
    assert operators.total == len(operators.float_operators) > 0


def test_an_input_without_a_batch_axis_is_fed_whole(converted, net_source, spec, samples):
    torch.manual_seed(0)
    gain = TensorSpec(name="gain", shape=(), dtype="float32", batch_axis=None)
    source = net_source(lambda line, x, gain: (line(x) * gain,), nn.Linear(8, 4), inputs=(spec("x", 8), gain))
    calibration = {**samples(source, 30), "gain": np.float32(1.5)[()]}
    made = converted(source, "int8", {name: np.asarray(array) for name, array in calibration.items()})
    check = {**samples(source, 10, seed=2), "gain": np.asarray(1.5, np.float32)}
    assert made.files.takes[1].shape == ()
    assert made.relative_l2(check)["y"] < 0.05


def test_a_source_with_a_fixed_batch_keeps_it(converted, net_source, samples):
    source = net_source(
        lambda x: (x * x.mean(0, keepdim=True),), inputs=(TensorSpec(name="x", shape=(4, 3), dtype="float32"),)
    )
    calibration = {"x": np.arange(18, dtype=np.float32).reshape(6, 3)}
    made = converted(source, "int8", calibration)
    assert made.files.static_batch == 4
    assert made.files.takes[0].shape == (4, 3)


def test_one_extreme_sample_widens_the_range(converted, conv_net, samples):
    calibration = samples(conv_net, 30)
    extreme = {"image": calibration["image"].copy()}
    extreme["image"][17, 1, 2, 3] = 40
    narrow = converted(conv_net, "int8", calibration).files.takes[0].quantization
    wide = converted(conv_net, "int8", extreme).files.takes[0].quantization
    assert narrow.scale == pytest.approx(np.ptp(calibration["image"]) / 255, rel=0.02)
    assert wide.scale == pytest.approx(np.ptp(extreme["image"]) / 255, rel=0.02)


def test_the_order_of_the_samples_does_not_matter(converted, conv_net, samples):
    calibration = samples(conv_net, 30)
    backwards = {name: array[::-1] for name, array in calibration.items()}
    assert converted(conv_net, "int8", calibration).data == converted(conv_net, "int8", backwards).data


def test_a_range_that_clips_the_calibration_data_is_an_error():
    port = Port(
        name="x", engine_name="x", shape=(1, 2), dtype="int8", quantization=Quantization(scale=0.1, zero_point=0)
    )
    check_coverage(port, np.array([-12.8, 12.7]))
    with pytest.raises(ConversionError, match=r"'x' covers -12.8..12.7 in the file, but the data reaches 0..25"):
        check_coverage(port, np.array([0.0, 25.0]))


def test_int8_without_calibration_data_is_refused(converted, conv_net):
    with pytest.raises(DataError, match="--calibration"):
        converted(conv_net, "int8")


def test_an_int8_file_that_computes_in_floating_point_only_is_refused(converted, net_source, spec, samples):
    source = net_source(lambda x: (torch.sin(x),), inputs=(spec("x", 8),))
    with pytest.raises(ConversionError, match="operators of the file compute in floating point") as caught:
        converted(source, "int8", samples(source, 20))
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("function", "operator"),
    [
        (lambda x: (torch.linalg.svd(x)[1],), "aten._linalg_svd.default"),
        (lambda x: (torch.fft.rfft(x).real,), "aten.view_as_real.default"),
        (lambda x: (torch.sort(x)[0],), "STABLEHLO_SORT"),
    ],
)
def test_an_operator_tflite_lacks_is_named_in_one_line(converted, net_source, spec, function, operator):
    source = net_source(function, inputs=(spec("x", 4, 4),))
    with pytest.raises(UnsupportedError, match=operator) as caught:
        converted(source)
    assert caught.value.operators == (operator,)
    assert caught.value.exit_code == 3
    assert "\n" not in str(caught.value)


def test_a_model_that_branches_on_its_data_is_refused_in_one_line(converted, net_source, spec):
    source = net_source(lambda x: (x + 1 if x.sum() > 0 else x - 1,), inputs=(spec("x", 4),))
    with pytest.raises(ConversionError, match="litert-torch could not convert the model") as caught:
        converted(source)
    assert "\n" not in str(caught.value)


def test_a_dynamic_size_besides_the_batch_is_refused_by_name(converted, net_source):
    ids = TensorSpec(name="ids", shape=("batch", "length"), dtype="int64")
    source = net_source(lambda ids: (ids * 2,), inputs=(ids,))
    with pytest.raises(UnsupportedError, match="'length' of input 'ids' is dynamic"):
        converted(source)


def test_nothing_is_written_to_stdout_and_no_known_noise_to_stderr(converted, conv_net, samples, capfd):
    converted(conv_net, "int8", samples(conv_net, 60))
    shown = capfd.readouterr()
    assert shown.out == ""
    assert [line for line in shown.err.splitlines() if "XNNPACK delegate" not in line] == []
