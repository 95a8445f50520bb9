"""The ONNX converter, run in onnxruntime as the target would."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from ipj_edge.errors import ConfigError, DataError, TargetUnavailableError, UnsupportedError
from ipj_edge.protocols import ConversionTask
from ipj_edge.values import ConversionOptions, TensorSpec
from ipj_edge_converters.onnx.convert import ToOnnx
from ipj_edge_converters.onnx.source.opener import OnnxOpener
from ipj_edge_converters.torch.opener import TorchOpener

IMAGE = ("image", (1, 1, 8, 8))

DENSE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 4)
"""


@pytest.fixture
def convert(tmp_path):
    """Convert a source and return (what the converter said, the file's path)."""

    def convert_source(source, precision, calibration=None, isa=""):
        into = tmp_path / f"into{len(list(tmp_path.iterdir()))}"
        into.mkdir()
        task = ConversionTask(
            source=source,
            target="onnxruntime-cpu",
            precision=precision,
            calibration=calibration,
            into=into,
            options=ConversionOptions(isa=isa),
        )
        said = ToOnnx().convert(task)
        assert [path.name for path in into.iterdir()] == [said.file]
        return said, into / said.file

    return convert_source


@pytest.fixture
def open_net(write, request_for):
    def open_text(text, *inputs, **more):
        path = write("import torch\nfrom torch import nn\n" + text)
        return TorchOpener().open(request_for(f"{path}:build", *inputs, **more))

    return open_text


def run(path, feeds):
    session = onnxruntime.InferenceSession(path)
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


def error_of(found, wanted):
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def images(count, seed=0):
    return np.random.default_rng(seed).random((count, 1, 8, 8), np.float32)


def test_fp32_is_the_model_with_named_sizes_and_weights_inside(nets, request_for, convert):
    source = TorchOpener().open(request_for(f"{nets}:build", IMAGE))
    said, path = convert(source, "fp32")
    onnx.checker.check_model(onnx.load_model(str(path), load_external_data=False), full_check=True)
    assert (said.file, said.static_batch, said.isa, said.opset) == ("model.onnx", None, "", 18)
    assert [(port.name, port.engine_name, port.shape, port.dtype) for port in said.takes] == [
        ("image", "image", ("batch", 1, 8, 8), "float32")
    ]
    assert [(port.name, port.shape, port.quantization) for port in said.adds] == [("output", ("batch", 10), None)]
    assert set(said.versions) >= {"torch", "onnx", "onnxruntime"}
    feeds = {"image": images(5)}
    np.testing.assert_allclose(run(path, feeds)["output"], source.run(feeds)["output"], rtol=1e-4, atol=1e-6)


def test_int8_computes_in_integers_and_is_close_to_its_source(nets, request_for, convert):
    source = TorchOpener().open(request_for(f"{nets}:build", IMAGE))
    said, path = convert(source, "int8", {"image": images(100)})
    # torch writes the pooling as ReduceMean, which onnxruntime has no integer kernel for.
    assert [name.split()[0] for name in said.operators.float_operators] == ["ReduceMean"]
    assert said.operators.total == 4
    assert said.isa == "vnni"
    assert said.takes[0].dtype == "float32"
    assert said.takes[0].quantization is None
    for batch in (1, 2, 32):
        feeds = {"image": images(batch, seed=1)}
        assert error_of(run(path, feeds)["output"], source.run(feeds)["output"]) < 0.05


def test_int8_has_weight_scales_per_channel_and_no_batch_normalisation(nets, request_for, convert):
    source = TorchOpener().open(request_for(f"{nets}:build", IMAGE))
    _, path = convert(source, "int8", {"image": images(20)})
    graph = onnx.load(path).graph
    assert "BatchNormalization" not in {node.op_type for node in graph.node}
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    kernels = [
        (tensors[node.input[0]], tensors[node.input[1]])
        for node in graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in tensors
    ]
    shapes = {tuple(weight.dims): list(scale.dims) for weight, scale in kernels if weight.data_type == TensorProto.INT8}
    assert shapes[(8, 1, 3, 3)] == [8]


def test_the_ranges_are_the_true_smallest_and_largest_values(nets, request_for, convert):
    calibration = images(70)
    calibration[3, 0, 0, 0], calibration[65, 0, 0, 0] = -7, 13
    source = TorchOpener().open(request_for(f"{nets}:build", IMAGE))
    _, path = convert(source, "int8", {"image": calibration})
    tensors = {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}
    np.testing.assert_allclose(tensors["image_scale"], 20 / 255, rtol=1e-6)
    assert tensors["image_zero_point"] == round(7 * 255 / 20)


def test_without_vnni_weights_have_seven_bits_and_nothing_is_assumed(nets, request_for, convert):
    source = TorchOpener().open(request_for(f"{nets}:build", IMAGE))
    largest = {}
    for isa in ("avx2", "vnni"):
        said, path = convert(source, "int8", {"image": images(20)}, isa=isa)
        arrays = [numpy_helper.to_array(item) for item in onnx.load(path).graph.initializer]
        largest[isa] = max(int(np.abs(item.astype(int)).max()) for item in arrays if item.dtype == np.int8)
        assert said.isa == {"avx2": "", "vnni": "vnni"}[isa]
    assert largest == {"avx2": 64, "vnni": 127}


def test_an_unknown_instruction_set_is_refused(nets, request_for, convert):
    source = TorchOpener().open(request_for(f"{nets}:build", IMAGE))
    with pytest.raises(ConfigError, match="unknown instruction set 'mmx'; known: vnni"):
        convert(source, "int8", {"image": images(4)}, isa="mmx")


NETS = {
    "matmul only": (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.w = nn.Parameter(torch.randn(16, 12))\n"
        "    def forward(self, x): return x @ self.w\nbuild = Net\n",
        [("x", (1, 16))],
    ),
    "matmul of activations": (
        "class Net(nn.Module):\n    def forward(self, x): return x @ x.transpose(1, 2)\nbuild = Net\n",
        [("x", (1, 6, 8))],
    ),
    "gemm": (
        "def build(): return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))\n",
        [("x", (1, 16))],
    ),
    "depthwise": (
        "def build(): return nn.Sequential(nn.Conv2d(4, 4, 3, groups=4), nn.BatchNorm2d(4), nn.ReLU6(), "
        "nn.Conv2d(4, 8, 1), nn.Hardswish())\n",
        [("x", (1, 4, 9, 7))],
    ),
    "audio": (
        "def build(): return nn.Sequential(nn.Conv1d(2, 8, 5, stride=2), nn.ReLU(), nn.MaxPool1d(2), "
        "nn.Flatten(), nn.Linear(56, 3), nn.Softmax(-1))\n",
        [("x", (1, 2, 32))],
    ),
    "two inputs": (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.a, self.b = nn.Linear(8, 4), nn.Linear(6, 4)\n"
        "    def forward(self, x, y):\n"
        "        return self.a(x) + self.b(y), torch.cat([self.a(x), self.b(y)], 1)\nbuild = Net\n",
        [("x", (1, 8)), ("y", (1, 6))],
    ),
    "transposed": (
        "def build(): return nn.Sequential(nn.ConvTranspose2d(3, 5, 3, stride=2), nn.Conv2d(5, 4, 1))\n",
        [("x", (1, 3, 5, 6))],
    ),
}


# What onnxruntime 1.32 has no integer kernel for, QDQ nodes around it or not.
STAY_FLOAT = {"transposed": {"ConvTranspose"}, "depthwise": {"HardSigmoid"}}


@pytest.mark.parametrize("name", NETS)
def test_int8_of_many_kinds_of_networks_is_close_to_its_source(open_net, convert, name):
    text, inputs = NETS[name]
    source = open_net(text, *inputs)
    random = np.random.default_rng(0)
    calibration = {key: random.normal(size=(64, *shape[1:])).astype(np.float32) for key, shape in inputs}
    said, path = convert(source, "int8", calibration)
    feeds = {key: value[:5] for key, value in calibration.items()}
    wanted, found = source.run(feeds), run(path, feeds)
    assert list(found) == list(wanted)
    for key, answer in wanted.items():
        assert found[key].shape == answer.shape
        assert error_of(found[key], answer) < 0.05
    in_float = {name.split()[0] for name in said.operators.float_operators}
    assert in_float == STAY_FLOAT.get(name, set())


def test_token_inputs_stay_integers(open_net, convert):
    source = open_net(
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.table, self.head = nn.Embedding(20, 16), nn.Linear(16, 3)\n"
        "    def forward(self, tokens): return self.head(self.table(tokens).mean(1))\nbuild = Net\n",
        TensorSpec(name="tokens", shape=(1, 6), dtype="int64", value_range=(0, 19)),
    )
    tokens = np.random.default_rng(0).integers(0, 20, (64, 6))
    said, path = convert(source, "int8", {"tokens": tokens})
    assert said.takes[0].dtype == "int64"
    assert error_of(run(path, {"tokens": tokens})["output"], source.run({"tokens": tokens})["output"]) < 0.05


def test_a_static_batch_is_calibrated_sample_by_sample(open_net, convert):
    source = open_net(
        DENSE + "    def forward(self, x): return self.fc(x.reshape(1, 6))\nbuild = Net\n",
        ("x", (1, 2, 3)),
    )
    assert source.inputs[0].shape == (1, 2, 3)
    calibration = np.random.default_rng(0).normal(size=(30, 2, 3)).astype(np.float32)
    said, path = convert(source, "int8", {"x": calibration})
    assert said.static_batch == 1
    found = np.concatenate([run(path, {"x": calibration[i : i + 1]})["output"] for i in range(30)])
    assert error_of(found, source.run({"x": calibration})["output"]) < 0.05


def test_a_scalar_setting_is_calibrated_with_its_value(open_net, convert):
    source = open_net(
        DENSE + "    def forward(self, x, gain): return self.fc(x) * gain\nbuild = Net\n",
        *(("x", (1, 6)), ("gain", ())),
    )
    x = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    for gain in (np.full((40,), 3, np.float32), np.full((), 3, np.float32)):
        _, path = convert(source, "int8", {"x": x, "gain": gain})
        feeds = {"x": x, "gain": np.full((), 3, np.float32)}
        assert error_of(run(path, feeds)["output"], source.run(feeds)["output"]) < 0.05


def test_a_setting_that_differs_between_samples_is_calibrated_with_each_value(open_net, convert):
    source = open_net(
        DENSE + "    def forward(self, x, gain): return self.fc(x) * gain\nbuild = Net\n",
        *(("x", (1, 6)), ("gain", ())),
    )
    x = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    _, path = convert(source, "int8", {"x": x, "gain": np.linspace(0.1, 8, 40, dtype=np.float32)})
    feeds = {"x": x, "gain": np.full((), 8, np.float32)}
    assert error_of(run(path, feeds)["output"], source.run(feeds)["output"]) < 0.2  # 0.99 if only 0.1 were seen


def test_int8_without_calibration_is_refused(nets, request_for, convert):
    source = TorchOpener().open(request_for(f"{nets}:build", IMAGE))
    with pytest.raises(DataError, match="int8 needs calibration data"):
        convert(source, "int8")
    with pytest.raises(DataError, match="no calibration data for the input image"):
        convert(source, "int8", {"picture": images(3)})


def test_operators_the_engine_keeps_in_float_are_named(open_net, convert):
    source = open_net(
        DENSE + "    def forward(self, x): return torch.erf(self.fc(x))\nbuild = Net\n",
        ("x", (1, 6)),
    )
    x = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    said, _ = convert(source, "int8", {"x": x})
    assert said.operators.total == 2
    assert [name.split()[0] for name in said.operators.float_operators] == ["Erf"]
    said, _ = convert(source, "fp32")
    assert len(said.operators.float_operators) == said.operators.total == 2


# Sources that are already quantized, or old.


@pytest.fixture
def quantized(nets, request_for, convert, tmp_path):
    """Return a function that opens an int8 ONNX file as a source, quantized for an instruction set."""

    def open_quantized(isa=""):
        _, path = convert(TorchOpener().open(request_for(f"{nets}:build", IMAGE)), "int8", {"image": images(20)}, isa)
        kept = tmp_path / f"kept{isa}.onnx"
        kept.write_bytes(path.read_bytes())
        return OnnxOpener().open(request_for(kept)), kept

    return open_quantized


def test_a_quantized_source_keeps_its_own_scales(quantized, convert):
    source, original = quantized()
    assert source.precision == "int8"
    said, path = convert(source, "int8", {"image": images(20, seed=9)})
    scales = [
        {item.name: numpy_helper.to_array(item).tolist() for item in onnx.load(file).graph.initializer}
        for file in (original, path)
    ]
    assert scales[0] == scales[1]
    assert said.isa == "vnni"
    feeds = {"image": images(4)}
    np.testing.assert_array_equal(run(path, feeds)["output"], run(original, feeds)["output"])


def test_a_quantized_source_cannot_become_fp32(quantized, convert):
    source, _ = quantized()
    with pytest.raises(TargetUnavailableError, match="already quantized and keeps its own scales; fp32") as caught:
        convert(source, "fp32")
    assert caught.value.exit_code == 6


def test_a_quantized_source_with_full_range_is_refused_without_vnni(quantized, convert):
    source, _ = quantized()
    with pytest.raises(TargetUnavailableError, match="8-bit weights, which are not exact on avx2"):
        convert(source, "int8", isa="avx2")
    narrow, _ = quantized("avx2")
    said, _ = convert(narrow, "int8", isa="avx2")
    assert said.isa == ""


def old_model(opset):
    """x → Conv → Relu → Reshape → MatMul → y, as opset 7 writes it."""
    random = np.random.default_rng(0)
    weights = {
        "k": random.normal(size=(4, 1, 3, 3)).astype(np.float32),
        "shape": np.array([0, 64], np.int64),
        "m": random.normal(size=(64, 5)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], auto_pad="SAME_UPPER", strides=[2, 2], name="conv"),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("Reshape", ["r", "shape"], ["f"], name="flat"),
        helper.make_node("MatMul", ["f", "m"], ["y"], name="head"),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "old",
        [value("x", TensorProto.FLOAT, ("n", 1, 8, 8))],
        [value("y", TensorProto.FLOAT, ("n", 5))],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=4)


@pytest.mark.parametrize("opset", [7, 8, 9, 10, 11, 12, 13, 17, 21])
def test_models_of_every_age_convert(opset, tmp_path, request_for, convert):
    onnx.save_model(old_model(opset), str(tmp_path / "old.onnx"))
    source = OnnxOpener().open(request_for(tmp_path / "old.onnx"))
    feeds = {"x": images(40)}
    wanted = source.run(feeds)["y"]
    said, path = convert(source, "fp32")
    assert said.opset == opset
    np.testing.assert_allclose(run(path, feeds)["y"], wanted, rtol=1e-4, atol=1e-5)
    said, path = convert(source, "int8", feeds)
    assert said.opset >= 13
    assert error_of(run(path, feeds)["y"], wanted) < 0.03
    assert said.operators.float_operators == ()


@pytest.mark.parametrize("shape", [(1, 5), (1,), (), (5,), (1, 1)])
def test_biases_of_every_shape_convert(shape, tmp_path, request_for, convert):
    model = old_model(17)
    model.graph.node[-1].output[0] = "product"
    model.graph.node.append(helper.make_node("Add", ["product", "bias"], ["y"], name="bias"))
    values = np.linspace(1, 2, int(np.prod(shape)), dtype=np.float32).reshape(shape)
    model.graph.initializer.append(numpy_helper.from_array(values, "bias"))
    onnx.save_model(model, str(tmp_path / "net.onnx"))
    source = OnnxOpener().open(request_for(tmp_path / "net.onnx"))
    feeds = {"x": images(40)}
    _, path = convert(source, "int8", feeds)
    assert error_of(run(path, feeds)["y"], source.run(feeds)["y"]) < 0.03


def test_what_the_version_converter_cannot_bring_up_is_refused(tmp_path, request_for, convert):
    model = old_model(9)
    model.graph.node.insert(0, helper.make_node("Upsample", ["x", "scales"], ["up"], mode="nearest", name="upsample"))
    model.graph.initializer.append(numpy_helper.from_array(np.array([1, 1, 1, 1], np.float32), "scales"))
    model.graph.node[1].input[0] = "up"
    onnx.save_model(model, str(tmp_path / "old.onnx"))
    source = OnnxOpener().open(request_for(tmp_path / "old.onnx"))
    feeds = {"x": images(20)}
    try:
        _, path = convert(source, "int8", feeds)
    except UnsupportedError as error:
        assert "opset" in str(error)  # noqa: PT017
    else:
        assert error_of(run(path, feeds)["y"], source.run(feeds)["y"]) < 0.03


SCRIPT = """
import sys
from pathlib import Path
import numpy as np
from ipj_edge.protocols import ConversionTask, SourceRequest
from ipj_edge.values import TensorSpec
from ipj_edge_converters.torch.opener import TorchOpener
from ipj_edge_converters.onnx.convert import ToOnnx

net, work = sys.argv[1], Path(sys.argv[2])
images = np.random.default_rng(0).random((50, 1, 8, 8), np.float32)
spec = TensorSpec(name="image", shape=(1, 1, 8, 8), dtype="float32")
source = TorchOpener().open(SourceRequest(location=net, inputs=(spec,), workdir=work))
for precision in ("fp32", "int8"):
    (work / precision).mkdir()
    ToOnnx().convert(
        ConversionTask(
            source=source, target="onnxruntime-cpu", precision=precision, calibration={"image": images},
            into=work / precision,
        )
    )
"""


@pytest.mark.slow
def test_two_fresh_processes_write_the_same_bytes_and_nothing_on_stdout(nets, tmp_path):
    made = []
    for name in ("first", "second"):
        work = tmp_path / name / ("a longer path" if name == "second" else "")
        work.mkdir(parents=True)
        command = [sys.executable, "-c", SCRIPT, f"{nets}:build", str(work)]
        done = subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": str(len(made))},
        )
        assert done.stdout == ""
        assert done.stderr == ""
        made.append([(work / file).read_bytes() for file in ("source.onnx", "fp32/model.onnx", "int8/model.onnx")])
    assert made[0] == made[1]
