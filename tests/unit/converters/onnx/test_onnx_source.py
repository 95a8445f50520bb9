"""The onnx source: small graphs made here."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ipj_edge.errors import SourceError, UnsupportedError
from ipj_edge.values import TensorSpec
from ipj_edge_converters.onnx.source.opener import OnnxOpener

FLOAT = TensorProto.FLOAT


@pytest.fixture
def save(tmp_path):
    """Write a model and return its path."""

    def save_model(model, name="net.onnx", **more):
        onnx.save_model(model, str(tmp_path / name), **more)
        return tmp_path / name

    return save_model


def model_of(nodes, inputs, outputs, weights=(), opset=17, ir=8, domains=()):
    graph = helper.make_graph(nodes, "net", inputs, outputs, [numpy_helper.from_array(v, k) for k, v in weights])
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(name, 1) for name in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir)


def value(name, shape, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def linear(batch="n", **more):
    """x (batch, 3) → Gemm → y (batch, 2)."""
    weights = [("w", np.arange(6, dtype=np.float32).reshape(3, 2)), ("b", np.ones(2, np.float32))]
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"], name="gemm")]
    return model_of(nodes, [value("x", (batch, 3))], [value("y", (batch, 2))], weights, **more)


def test_a_model_says_what_it_takes_and_gives(save, request_for):
    path = save(linear())
    source = OnnxOpener().open(request_for(path))
    assert (source.kind, source.name, source.file, source.precision) == ("onnx", "net", "net.onnx", "fp32")
    assert (source.inputs[0].name, source.inputs[0].shape, source.inputs[0].batch_axis) == ("x", ("n", 3), 0)
    assert (source.outputs[0].name, source.outputs[0].shape, source.outputs[0].batch_axis) == ("y", ("n", 2), 0)
    assert source.forms == ("onnx",)
    assert set(source.versions) == {"onnx", "onnxruntime"}
    answer = source.run({"x": np.ones((40, 3), np.float32)})["y"]
    assert answer.tolist() == [[7, 10]] * 40


def test_the_hash_of_a_plain_file_is_its_sha256(save, request_for):
    import hashlib

    path = save(linear())
    assert OnnxOpener().open(request_for(path)).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("batch", ["?", "", -1, 0, None, "unk__12", "2*k"])
def test_a_batch_without_a_usable_name_is_called_batch(save, request_for, batch):
    source = OnnxOpener().open(request_for(save(linear(batch))))
    assert source.inputs[0].shape == ("batch", 3)
    assert source.outputs[0].shape == ("batch", 2)
    written = onnx.load(source.onnx_path()).graph
    assert written.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert written.output[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def test_a_static_batch_stays_static_and_runs_in_parts(save, request_for):
    source = OnnxOpener().open(request_for(save(linear(2))))
    assert source.inputs[0].shape == (2, 3)
    assert source.run({"x": np.ones((6, 3), np.float32)})["y"].shape == (6, 2)
    with pytest.raises(SourceError, match="2 samples at a time; 3"):
        source.run({"x": np.ones((3, 3), np.float32)})


def test_a_declared_dynamic_batch_that_is_frozen_inside_becomes_static_with_a_note(save, request_for):
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    weights = [("shape", np.array([1, 6], np.int64))]
    model = model_of(nodes, [value("x", ("n", 2, 3))], [value("y", ("n", 6))], weights)
    source = OnnxOpener().open(request_for(save(model)))
    assert source.inputs[0].shape == (1, 2, 3)
    assert source.outputs[0].shape == (1, 6)
    assert source.notes == ("the batch is static: the model declares any batch and fails at batch 2",)
    assert source.run({"x": np.zeros((5, 2, 3), np.float32)})["y"].shape == (5, 6)


@pytest.mark.parametrize("batch", ["n", 1])
def test_a_size_that_hangs_on_the_values_is_open_however_often_it_is_seen(save, request_for, batch):
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("NonZero", ["y"], ["found"]),
        helper.make_node("Shape", ["found"], ["count"]),
    ]
    outputs = [
        value("y", (batch, 3)),
        value("found", (2, None), TensorProto.INT64),
        value("count", (2,), TensorProto.INT64),
    ]
    source = OnnxOpener().open(request_for(save(model_of(nodes, [value("x", (batch, 3))], outputs))))
    y, found, count = source.outputs
    assert (y.shape, y.batch_axis) == ((batch, 3), 0)
    assert (found.shape[0], found.batch_axis) == (2, None)
    assert isinstance(found.shape[1], str)
    assert count.shape == (2,)


def test_open_sizes_are_named_and_fixed_by_a_description(save, request_for):
    nodes = [helper.make_node("GlobalAveragePool", ["x"], ["y"])]
    path = save(model_of(nodes, [value("x", (-1, 3, "?", "?"))], [value("y", ("?", 3, 1, 1))]))
    assert OnnxOpener().open(request_for(path)).inputs[0].shape == ("batch", 3, "x_dim2", "x_dim3")
    source = OnnxOpener().open(request_for(path, ("x", (1, 3, 8, 16))))
    assert source.inputs[0].shape == ("batch", 3, 8, 16)
    assert source.outputs[0].shape == ("batch", 3, 1, 1)


def test_descriptions_add_range_and_layout(save, request_for):
    said = TensorSpec(name="x", shape=(1, 3), dtype="float32", value_range=(0, 1), layout="NC")
    source = OnnxOpener().open(request_for(save(linear()), said))
    assert (source.inputs[0].value_range, source.inputs[0].layout, source.inputs[0].shape) == (
        (0, 1),
        "NC",
        ("n", 3),
    )


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (("image", (1, 3)), "has no input image; its inputs are x"),
        (("x", (1, 4)), "is nx3 in the model; 1x4 was described"),
        (("x", (1, 3), "uint8"), "is float32 in the model; uint8 was described"),
    ],
)
def test_descriptions_that_contradict_the_model_are_refused(save, request_for, said, message):
    with pytest.raises(SourceError, match=message):
        OnnxOpener().open(request_for(save(linear()), said))


def test_weights_listed_as_inputs_are_no_inputs(save, request_for):
    model = linear(1, opset=8, ir=3)
    model.graph.input.extend([value("w", (3, 2)), value("b", (2,))])
    source = OnnxOpener().open(request_for(save(model)))
    assert [item.name for item in source.inputs] == ["x"]
    written = onnx.load(source.onnx_path())
    assert [item.name for item in written.graph.input] == ["x"]
    onnx.checker.check_model(written)


def test_a_graph_without_a_name_is_named(save, request_for):
    model = linear()
    model.graph.ClearField("name")
    source = OnnxOpener().open(request_for(save(model)))
    onnx.checker.check_model(onnx.load(source.onnx_path()))


def test_output_names_replace_the_models_own(save, request_for):
    path = save(linear())
    source = OnnxOpener().open(request_for(path, output_names=("scores",)))
    assert [item.name for item in source.outputs] == ["scores"]
    assert source.run({"x": np.ones((2, 3), np.float32)})["scores"].tolist() == [[7, 10]] * 2
    with pytest.raises(SourceError, match="1 outputs"):
        OnnxOpener().open(request_for(path, output_names=("a", "b")))
    with pytest.raises(SourceError, match="name w is taken"):
        OnnxOpener().open(request_for(path, output_names=("w",)))


def test_several_inputs_outputs_and_a_scalar_without_a_batch(save, request_for):
    nodes = [
        helper.make_node("Cast", ["rate"], ["factor"], to=FLOAT),
        helper.make_node("Mul", ["a", "factor"], ["scaled"]),
        helper.make_node("Concat", ["b", "b"], ["twice"], axis=0),
    ]
    inputs = [value("a", ("batch", 2)), value("b", (2, "batch", 4)), value("rate", (), TensorProto.INT64)]
    outputs = [value("scaled", ("batch", 2)), value("twice", (4, "batch", 4))]
    source = OnnxOpener().open(request_for(save(model_of(nodes, inputs, outputs))))
    # Samples are cut along axis 0 everywhere: with some of them on axis 1 there is one at a time.
    assert source.notes == ("the batch is static: 'b' has its samples on axis 1",)
    assert [(item.shape, item.batch_axis) for item in source.inputs] == [((1, 2), 0), ((2, 1, 4), None), ((), None)]
    assert [(item.shape, item.batch_axis) for item in source.outputs] == [((1, 2), 0), ((4, 1, 4), None)]
    feeds = {"a": np.ones((1, 2), np.float32), "b": np.ones((2, 1, 4), np.float32), "rate": np.array(3)}
    answer = source.run(feeds)
    assert answer["scaled"].tolist() == [[3, 3]]
    assert answer["twice"].shape == (4, 1, 4)
    with pytest.raises(SourceError, match="input 'b' takes shape 2x1x4; got 2x3x4"):
        source.run({**feeds, "b": np.ones((2, 3, 4), np.float32)})


# Weights outside the file.


@pytest.fixture
def outside(save, tmp_path):
    path = save(linear(), save_as_external_data=True, location="net.onnx.data", size_threshold=0)
    return path, tmp_path / "net.onnx.data"


def test_weights_beside_the_file_are_read_inlined_and_hashed(outside, request_for):
    path, data = outside
    source = OnnxOpener().open(request_for(path))
    assert source.run({"x": np.ones((1, 3), np.float32)})["y"].tolist() == [[7, 10]]
    written = onnx.load_model(str(source.onnx_path()), load_external_data=False)
    assert all(tensor.data_location == TensorProto.DEFAULT for tensor in written.graph.initializer)
    content = bytearray(data.read_bytes())
    content[0] ^= 1
    data.write_bytes(content)
    assert OnnxOpener().open(request_for(path)).sha256 != source.sha256


def test_a_missing_weights_file_is_named(outside, request_for):
    path, data = outside
    data.unlink()
    with pytest.raises(SourceError, match=r"keeps its weights in 'net\.onnx\.data', which is not beside it"):
        OnnxOpener().open(request_for(path))


def test_a_cut_weights_file_is_named(outside, request_for):
    path, data = outside
    data.write_bytes(data.read_bytes()[:10])
    with pytest.raises(SourceError, match=r"'net\.onnx\.data' is cut short: it has 10 bytes"):
        OnnxOpener().open(request_for(path))


@pytest.mark.parametrize("location", ["/etc/hostname", "../elsewhere.data", ""])
def test_weights_elsewhere_are_refused(outside, request_for, location):
    path, _ = outside
    model = onnx.load_model(str(path), load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location
    path.write_bytes(model.SerializeToString())
    with pytest.raises(SourceError, match="only a file beside it is read"):
        OnnxOpener().open(request_for(path))


# Half precision.


def half(kind):
    """x → Cast to half → Mul by a half constant → Add a half weight → y, all half precision."""
    constant = helper.make_tensor("c", kind, [], [0.1])
    weight = helper.make_tensor("w", kind, [3], [1 / 3, 2.0, 1e-4])
    nodes = [
        helper.make_node("Constant", [], ["c"], value=constant),
        helper.make_node("Cast", ["x"], ["cast"], to=kind),
        helper.make_node("Mul", ["cast", "c"], ["scaled"]),
        helper.make_node("Add", ["scaled", "w"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "net", [value("x", ("n", 3), kind)], [value("y", ("n", 3), kind)], [weight])
    graph.value_info.append(value("scaled", ("n", 3), kind))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(("kind", "precision"), [(TensorProto.FLOAT16, "fp16"), (TensorProto.BFLOAT16, "bf16")])
def test_half_precision_is_widened_exactly_and_remembered(save, request_for, kind, precision):
    model = half(kind)
    source = OnnxOpener().open(request_for(save(model)))
    assert source.precision == precision
    assert "widened to float32" in source.notes[0]
    assert (source.inputs[0].dtype, source.outputs[0].dtype) == ("float32", "float32")
    written = onnx.load(source.onnx_path())
    onnx.checker.check_model(written, full_check=True)
    weight = numpy_helper.to_array(written.graph.initializer[0])
    assert weight.dtype == np.float32
    np.testing.assert_array_equal(weight, numpy_helper.to_array(model.graph.initializer[0]).astype(np.float32))
    constant = np.float32(numpy_helper.to_array(model.graph.node[0].attribute[0].t))
    x = np.array([[0.5, 1, 2]], np.float32)
    np.testing.assert_array_equal(source.run({"x": x})["y"], x * constant + weight)


# Quantized models.


def quantized():
    weights = [
        ("scale", np.array(0.5, np.float32)),
        ("zero", np.array(3, np.uint8)),
        ("w8", np.array([[1, 2], [3, 4], [5, 100]], np.int8)),
        ("w_scale", np.array(0.25, np.float32)),
        ("w_zero", np.array(0, np.int8)),
    ]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "scale", "zero"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w8", "w_scale", "w_zero"], ["wd"]),
        helper.make_node("MatMul", ["xd", "wd"], ["y"]),
    ]
    return model_of(nodes, [value("x", ("n", 3))], [value("y", ("n", 2))], weights)


def test_a_quantized_model_is_int8_and_runs_as_its_file_says(save, request_for):
    source = OnnxOpener().open(request_for(save(quantized())))
    assert source.precision == "int8"
    assert source.inputs[0].dtype == "float32"
    x = np.array([[1.1, 2.2, -9]], np.float32)
    seen = (np.clip(np.rint(x / 0.5) + 3, 0, 255) - 3) * 0.5
    np.testing.assert_allclose(source.run({"x": x})["y"], seen @ (0.25 * np.array([[1, 2], [3, 4], [5, 100]])))


# Refusals.


def test_a_missing_file_is_refused(request_for):
    with pytest.raises(SourceError, match="no file"):
        OnnxOpener().open(request_for("nowhere.onnx"))


@pytest.mark.parametrize("content", [b"", b"junk", b"\x00" * 100, "cut", "text"])
def test_a_corrupt_file_is_refused_in_one_line(save, request_for, content):
    path = save(linear())
    path.write_bytes(
        path.read_bytes()[:-7] if content == "cut" else b"<html>hello</html>" if content == "text" else content
    )
    with pytest.raises(SourceError, match=r"net\.onnx") as caught:
        OnnxOpener().open(request_for(path))
    assert "\n" not in str(caught.value)


def test_an_opset_nobody_knows_is_named(save, request_for):
    path = save(linear())
    model = onnx.load(path)
    model.opset_import[0].version = 99
    path.write_bytes(model.SerializeToString())
    with pytest.raises(SourceError, match=r"stamped opset 99; the newest that onnx .* knows is \d+: export it"):
        OnnxOpener().open(request_for(path))


def test_an_opset_before_seven_is_named(save, request_for):
    path = save(linear())
    model = onnx.load(path)
    model.opset_import[0].version = 6
    path.write_bytes(model.SerializeToString())
    with pytest.raises(SourceError, match="opset 6; 7 is the oldest"):
        OnnxOpener().open(request_for(path))


def test_an_ir_version_nobody_knows_is_named(save, request_for):
    path = save(linear())
    model = onnx.load(path)
    model.ir_version = 99
    path.write_bytes(model.SerializeToString())
    with pytest.raises(SourceError, match="IR version 99; the newest"):
        OnnxOpener().open(request_for(path))


def test_custom_operators_are_named(save, request_for):
    nodes = [
        helper.make_node("Wobble", ["x"], ["t"], domain="my.domain"),
        helper.make_node("NoSuchOperator", ["t"], ["y"]),
    ]
    path = save(model_of(nodes, [value("x", ("n", 3))], [value("y", ("n", 3))], domains=("my.domain",)))
    with pytest.raises(UnsupportedError, match="custom operator") as caught:
        OnnxOpener().open(request_for(path))
    assert caught.value.operators == ("ai.onnx::NoSuchOperator", "my.domain::Wobble")
    assert caught.value.exit_code == 3


def test_custom_operators_inside_branches_are_found(save, request_for):
    branch = helper.make_graph(
        [helper.make_node("Wobble", ["x"], ["t"], domain="my.domain")], "then", [], [value("t", ("n", 3))]
    )
    other = helper.make_graph([helper.make_node("Identity", ["x"], ["e"])], "else", [], [value("e", ("n", 3))])
    nodes = [helper.make_node("If", ["flag"], ["y"], then_branch=branch, else_branch=other)]
    inputs = [value("x", ("n", 3)), value("flag", (), TensorProto.BOOL)]
    path = save(model_of(nodes, inputs, [value("y", ("n", 3))], domains=("my.domain",)))
    with pytest.raises(UnsupportedError, match=r"my\.domain::Wobble"):
        OnnxOpener().open(request_for(path))


def test_a_graph_onnxruntime_refuses_is_refused_in_one_line(save, request_for):
    nodes = [helper.make_node("Relu", ["nowhere"], ["y"])]
    path = save(model_of(nodes, [value("x", ("n", 3))], [value("y", ("n", 3))]))
    with pytest.raises(SourceError, match=r"onnxruntime refuses 'net\.onnx'") as caught:
        OnnxOpener().open(request_for(path))
    assert "\n" not in str(caught.value)


def test_strings_are_refused(save, request_for):
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    text = TensorProto.STRING
    path = save(model_of(nodes, [value("x", ("n", 3), text)], [value("y", ("n", 3), text)]))
    with pytest.raises(SourceError, match="'x' is of type"):
        OnnxOpener().open(request_for(path))


def test_feeds_the_model_fails_on_are_a_source_error(save, request_for):
    nodes = [helper.make_node("Gather", ["table", "x"], ["y"])]
    weights = [("table", np.zeros((4, 2), np.float32))]
    model = model_of(nodes, [value("x", ("n",), TensorProto.INT64)], [value("y", ("n", 2))], weights)
    source = OnnxOpener().open(request_for(save(model)))
    with pytest.raises(SourceError, match="the model fails on inputs of 1 int64") as caught:
        source.run({"x": np.array([9])})
    assert "\n" not in str(caught.value)


# What is handed on.


def test_metadata_and_doc_strings_at_any_depth_are_dropped(save, request_for):
    model = linear()
    secret = "/home/somebody/net.py"
    model.doc_string = model.graph.doc_string = model.graph.node[0].doc_string = secret
    model.graph.input[0].doc_string = model.graph.initializer[0].doc_string = secret
    for place in (model, model.graph, model.graph.node[0], model.graph.output[0], model.graph.initializer[0]):
        place.metadata_props.add(key="source", value=secret)
    source = OnnxOpener().open(request_for(save(model)))
    assert secret.encode() not in source.onnx_path().read_bytes()


def test_local_functions_are_inlined(save, request_for):
    body = [helper.make_node("Mul", ["a", "a"], ["b"])]
    square = helper.make_function("local", "Square", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    nodes = [helper.make_node("Square", ["x"], ["y"], domain="local")]
    model = model_of(nodes, [value("x", ("n", 3))], [value("y", ("n", 3))], domains=("local",))
    model.functions.append(square)
    source = OnnxOpener().open(request_for(save(model)))
    assert source.run({"x": np.full((1, 3), 3, np.float32)})["y"].tolist() == [[9, 9, 9]]
    assert [node.op_type for node in onnx.load(source.onnx_path()).graph.node] == ["Mul"]


def test_onnx_files_are_recognised_by_their_suffix():
    assert OnnxOpener().accepts("folder/net.onnx")
    assert not OnnxOpener().accepts("net.pt2")
