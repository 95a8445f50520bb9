"""Sources of .tflite files: what is read from the file, what callers give and get, what is refused."""

from __future__ import annotations

import random

import numpy as np
import psutil
import pytest

from ipj_edge import load
from ipj_edge.bundles.bundle import open_bundle
from ipj_edge.errors import InputError, IpjEdgeError, SourceError, TargetUnavailableError, UnsupportedError
from ipj_edge.values import Quantization, TensorSpec


def quantized_sum(x: np.ndarray) -> np.ndarray:
    """What `scaled_sum` computes, from its definition: real values to int8, sum, int8 back to real values."""
    stored = np.clip(np.rint(x / 0.5) - 3, -128, 127)
    real = (stored + 3) * 0.5 + np.arange(-7, 8).reshape(1, 3, 5) * 0.25
    return (np.clip(np.rint(real / 0.75) + 5, -128, 127) - 5) * 0.75


def test_integer_inputs_with_a_scale_are_real_values_to_the_caller(scaled_sum, write, converted):
    bundle = converted(write(scaled_sum))
    manifest = open_bundle(bundle).manifest
    assert manifest.inputs[0].name == "x"
    assert manifest.inputs[0].dtype == "float32"
    assert manifest.inputs[0].value_range == (-62.5, 65.0)
    assert manifest.stages[0].takes[0].quantization == Quantization(scale=0.5, zero_point=-3)
    assert manifest.stages[0].takes[0].engine_name == "x_inside"
    assert manifest.precision == "int8"
    x = np.random.default_rng(0).uniform(-20, 20, (4, 3, 5)).astype(np.float32)
    with load(bundle) as model:
        found = model.run(x).outputs["y"]
    # One step of the output: the engine rescales in fixed point.
    assert np.abs(found - quantized_sum(x)).max() <= 0.75 + 1e-6
    assert np.abs(found - quantized_sum(x)).mean() < 0.1


def test_values_beyond_the_scale_are_clipped_and_do_not_wrap(scaled_sum, write, converted):
    with load(converted(write(scaled_sum))) as model:
        high = model.run(np.full((1, 3, 5), 1e6, np.float32)).outputs["y"]
        highest = model.run(np.full((1, 3, 5), 65.0, np.float32)).outputs["y"]
    assert (high == highest).all()
    assert high.min() > 50


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_stored_integers_cannot_be_given_by_mistake(scaled_sum, write, converted, dtype):
    with load(converted(write(scaled_sum))) as model, pytest.raises(InputError, match="expected dtype float32"):
        model.run(np.zeros((1, 3, 5), dtype))


def test_the_bundle_holds_the_very_bytes_of_the_source(scaled_sum, write, converted):
    path = write(scaled_sum)
    assert (converted(path) / "model.tflite").read_bytes() == path.read_bytes()


def test_another_precision_than_that_of_a_quantized_file_is_refused(scaled_sum, write, converted):
    with pytest.raises(TargetUnavailableError, match="already quantized to int8"):
        converted(write(scaled_sum), precisions=("fp32",))


def test_a_float_file_is_not_quantized_on_the_way(builder, write, converted, tmp_path):
    x, y = builder.tensor("x", (1, 3)), builder.tensor("y", (1, 3))
    builder.operator("ABS", (x,), (y,))
    builder.ends((x,), (y,))
    np.savez(tmp_path / "cal.npz", x=np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32))
    with pytest.raises(UnsupportedError, match="packaged as it is"):
        converted(write(builder), precisions=("int8",), calibration=str(tmp_path / "cal.npz"))


def two_signatures(builder):
    for number, (key, kind) in enumerate((("negated", "NEG"), ("absolute", "ABS"))):
        graph = builder.graph() if number else 0
        x, y = builder.tensor(f"x{number}", (1, 3)), builder.tensor(f"y{number}", (1, 3))
        builder.operator(kind, (x,), (y,))
        builder.ends((x,), (y,))
        builder.signature(key, graph, {"value": x}, {"result": y})
    return builder


@pytest.mark.parametrize(("key", "expected"), [("negated", [2.0, -3.0, 0.5]), ("absolute", [2.0, 3.0, 0.5])])
def test_one_of_several_signatures_can_be_named(builder, write, converted, key, expected):
    path = write(two_signatures(builder))
    with load(converted(f"{path}:{key}")) as model:
        outputs = model.run({"value": np.array([[-2.0, 3.0, -0.5]], np.float32)}).outputs
    assert outputs["result"].tolist() == [expected]


def test_several_signatures_without_a_name_are_listed(builder, write, open_source):
    with pytest.raises(SourceError, match=r"signatures negated, absolute: name one, e.g. net.tflite:negated"):
        open_source(write(two_signatures(builder)))


def test_an_unknown_signature_is_refused(builder, write, open_source):
    with pytest.raises(SourceError, match="no signature 'half'; it has negated, absolute"):
        open_source(f"{write(two_signatures(builder))}:half")


def test_a_branch_still_finds_its_graphs_when_another_signature_comes_first(builder, write, converted):
    plus = builder.model.subgraphs[0]
    x, y = builder.tensor("px", (1, 3)), builder.tensor("py", (1, 3))
    builder.operator("ABS", (x,), (y,))
    builder.ends((x,), (y,))
    assert builder.model.subgraphs[0] is plus
    builder.graph()
    x, y = builder.tensor("mx", (1, 3)), builder.tensor("my", (1, 3))
    builder.operator("NEG", (x,), (y,))
    builder.ends((x,), (y,))
    main = builder.graph()
    x, zero = builder.tensor("value", (1, 3)), builder.tensor("zero", (), data=np.zeros((), np.float32))
    axes = builder.tensor("axes", (2,), "INT32", data=np.array([0, 1], np.int32))
    total, positive = builder.tensor("total", ()), builder.tensor("positive", (), "BOOL")
    y = builder.tensor("result", (1, 3))
    builder.operator("SUM", (x, axes), (total,), options=("ReducerOptions", {"keepDims": False}))
    builder.operator("GREATER", (total, zero), (positive,), options=("GreaterOptions", {}))
    builder.operator("IF", (positive, x), (y,), options=("IfOptions", {"thenSubgraphIndex": 0, "elseSubgraphIndex": 1}))
    builder.ends((x,), (y,))
    builder.signature("main", main, {"value": x}, {"result": y})
    with load(converted(write(builder))) as model:
        positive_sum = model.run(np.array([[-2.0, 3.0, -0.5]], np.float32)).outputs["result"]
        negative_sum = model.run(np.array([[-2.0, 1.0, -0.5]], np.float32)).outputs["result"]
    assert positive_sum.tolist() == [[2.0, 3.0, 0.5]]
    assert negative_sum.tolist() == [[2.0, -1.0, 0.5]]


def test_tensors_without_names_get_some(builder, write, converted):
    a, b = builder.tensor("", (1, 3)), builder.tensor("", (1, 3))
    y = builder.tensor("", (1, 3))
    builder.operator("SUB", (a, b), (y,), options=("SubOptions", {}))
    builder.ends((a, b), (y,))
    with load(converted(write(builder))) as model:
        feeds = {"input_0": np.full((1, 3), 5, np.float32), "input_1": np.full((1, 3), 2, np.float32)}
        assert model.run(feeds).outputs["output_0"].tolist() == [[3.0, 3.0, 3.0]]


def test_open_sizes_have_to_be_given(builder, write, open_source, converted):
    x, y = builder.tensor("x", (1, 1, 1), open_axes=(0, 1)), builder.tensor("y", (1, 1, 1), open_axes=(0, 1))
    builder.operator("ABS", (x,), (y,))
    builder.ends((x,), (y,))
    path = write(builder)
    with pytest.raises(SourceError, match=r"leaves sizes of 'x' open .*--input"):
        open_source(path)
    said = TensorSpec(name="x", shape=("batch", 4, 1), dtype="float32")
    with load(converted(path, inputs=(said,))) as model:
        assert model.run(np.full((2, 4, 1), -3, np.float32)).outputs["y"].tolist() == [[[3.0]] * 4] * 2


def test_custom_operators_are_refused_by_name(builder, write, open_source):
    x, h, y = (builder.tensor(name, (1, 3)) for name in "xhy")
    builder.operator("Blur2000", (x,), (h,))
    builder.operator("Sharpen", (h,), (y,))
    builder.ends((x,), (y,))
    with pytest.raises(UnsupportedError, match="Blur2000, Sharpen") as caught:
        open_source(write(builder))
    assert caught.value.operators == ("Blur2000", "Sharpen")


def test_a_compiled_edgetpu_file_is_refused_with_what_to_give_instead(builder, write, open_source):
    x, y = builder.tensor("x", (1, 3), "UINT8", scale=1.0), builder.tensor("y", (1, 3), "UINT8", scale=1.0)
    builder.operator("edgetpu-custom-op", (x,), (y,))
    builder.ends((x,), (y,))
    with pytest.raises(UnsupportedError, match="compiled for the Edge TPU already"):
        open_source(write(builder))


@pytest.mark.parametrize(("content", "told"), [(b"", "TFL3"), (b"no model at all", "TFL3")])
def test_what_is_no_tflite_file_is_refused(tmp_path, open_source, content, told):
    (tmp_path / "net.tflite").write_bytes(content)
    with pytest.raises(SourceError, match=told):
        open_source(tmp_path / "net.tflite")


def test_a_missing_file_is_named(tmp_path, open_source):
    with pytest.raises(SourceError, match="no such file"):
        open_source(tmp_path / "net.tflite")


def test_damaged_files_are_refused_in_one_line_and_never_end_this_process(scaled_sum, write, open_source):
    whole, seeded, told = scaled_sum.bytes(), random.Random(1), []
    for number in range(12):
        data = bytearray(whole[: seeded.randrange(8, len(whole))] if number % 3 == 0 else whole)
        for _ in range(6):
            data[seeded.randrange(8, len(data))] = seeded.randrange(256)
        path = write(scaled_sum)
        path.write_bytes(data)
        try:
            open_source(path)
        except IpjEdgeError as error:
            told.append(str(error))
    assert len(told) > 6
    assert not any("\n" in line for line in told)


def test_the_child_ends_with_the_source(scaled_sum, write, open_source):
    before = set(psutil.Process().children())  # sources of earlier tests that were not dropped yet
    source = open_source(write(scaled_sum))
    (keeper,) = set(psutil.Process().children()) - before
    (engine,) = keeper.children()
    del source
    assert not keeper.is_running()
    assert not engine.is_running()


def test_macs_and_weights_are_counted_from_the_operators(builder, write, open_source):
    x = builder.tensor("x", (1, 5, 7, 3))
    filters = builder.tensor("filters", (4, 2, 2, 3), data=np.ones((4, 2, 2, 3), np.float32))
    bias = builder.tensor("bias", (4,), data=np.ones(4, np.float32))
    y = builder.tensor("y", (1, 4, 6, 4))
    options = {"strideW": 1, "strideH": 1, "dilationWFactor": 1, "dilationHFactor": 1, "padding": 1}
    builder.operator("CONV_2D", (x, filters, bias), (y,), options=("Conv2DOptions", options))
    builder.ends((x,), (y,))
    source = open_source(write(builder))
    assert source.count().macs == 4 * 6 * 4 * 2 * 2 * 3
    assert source.count().parameters == 4 * 2 * 2 * 3 + 4
    assert source.inputs[0].layout == "NHWC"


def test_outputs_can_be_renamed(scaled_sum, write, converted):
    with load(converted(write(scaled_sum), output_names=("scores",))) as model:
        assert list(model.run(np.zeros((1, 3, 5), np.float32)).outputs) == ["scores"]


def two_exits(builder):
    x = builder.tensor("x", (1, 4))
    early, hidden, late = (builder.tensor(name, (1, 4)) for name in ("early", "hidden", "late"))
    weights = np.random.default_rng(0).normal(size=(3, 4, 4)).astype(np.float32)
    for number, (read, made) in enumerate(((x, hidden), (hidden, early), (hidden, late))):
        constant = builder.tensor(f"weights{number}", (4, 4), data=weights[number])
        builder.operator("FULLY_CONNECTED", (read, constant, -1), (made,), options=("FullyConnectedOptions", {}))
    builder.ends((x,), (early, late))
    builder.signature("serving_default", 0, {"x": x}, {"early": early, "late": late})
    return builder


def test_a_file_with_several_exits_is_cut_into_stages(builder, write, converted):
    path = write(two_exits(builder))
    bundle = converted(path, split_at=("exits",))
    manifest = open_bundle(bundle).manifest
    assert [stage.exit_output for stage in manifest.stages] == ["early", "late"]
    x = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    with load(converted(path, name="whole")) as whole, load(bundle, exits="all") as stages:
        found = stages.run_every_output(x)
        for name, value in whole.run(x).outputs.items():
            assert (found[name] == value).all()


def test_stages_are_refused_for_the_edge_tpu(builder, write, converted):
    x, early, late = (builder.tensor(name, (1, 4), "INT8", scale=0.5) for name in ("x", "early", "late"))
    builder.operator("RELU", (x,), (early,), version=2)
    builder.operator("TANH", (early,), (late,), version=2)
    builder.ends((x,), (early, late))
    with pytest.raises(UnsupportedError):
        converted(write(builder), "edgetpu", split_at=("exits",))
