"""Small real networks, an ONNX source for them, and bundles made by the real converter."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ipj_edge.bundles.bundle import record_files
from ipj_edge.bundles.manifest import (
    SCHEMA_VERSION,
    BatchSpec,
    Bundle,
    Manifest,
    OperatorCount,
    ParityRecord,
    Requirements,
    SourceRecord,
    StageSpec,
)
from ipj_edge.plugins import without_telemetry
from ipj_edge.protocols import ConversionTask, MacCount, StageFiles
from ipj_edge.values import ConversionOptions, Port, TensorSpec
from ipj_edge_converters.openvino.convert import ToOpenvino

with without_telemetry():
    import onnxruntime

DTYPES = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "int64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
}


class OnnxSource:
    """A source over one ONNX file, with onnxruntime as its reference."""

    kind = "onnx"
    forms = ("onnx",)

    def __init__(self, path, inputs, outputs, precision="fp32"):
        self.versions = {"onnx": onnx.__version__}
        self._path, self.inputs, self.outputs, self.precision = Path(path), inputs, outputs, precision
        self.name, self.file = self._path.stem, self._path.name
        self.sha256 = hashlib.sha256(self._path.read_bytes()).hexdigest()

    def onnx_path(self):
        return self._path

    def run(self, feeds):
        session = onnxruntime.InferenceSession(str(self._path), providers=["CPUExecutionProvider"])
        names = [spec.name for spec in self.outputs]
        return dict(zip(names, session.run(names, dict(feeds)), strict=True))

    def count(self):
        return MacCount(macs=None, reason="not needed here", parameters=0)

    def feeds(self, batch, seed=0):
        """Return seeded, asymmetric random inputs."""
        rng = np.random.default_rng(seed)
        feeds = {}
        for spec in self.inputs:
            shape = tuple(batch if size == "batch" else size for size in spec.shape)
            if spec.dtype == "int64":
                feeds[spec.name] = rng.integers(0, 50, shape)
            else:
                feeds[spec.name] = np.asarray(rng.standard_normal(shape) + 0.1, dtype=spec.dtype)
        return feeds

    def calibration(self, samples=64, seed=1):
        """Return calibration arrays, first axis = samples, as the pipeline hands them to a converter."""
        rows = [self.feeds(1, seed=seed + index) for index in range(samples)]
        return {
            spec.name: np.stack([row[spec.name] if spec.batch_axis is None else row[spec.name][0] for row in rows])
            for spec in self.inputs
        }


def spec(name, shape, dtype="float32", batch_axis=0):
    return TensorSpec(name=name, shape=shape, dtype=dtype, batch_axis=batch_axis)


class Graph:
    """Builds an ONNX graph with seeded weights."""

    def __init__(self, seed=0):
        self._rng = np.random.default_rng(seed)
        self._nodes, self._weights = [], []

    def weight(self, name, shape, spread=None):
        scale = spread if spread is not None else 1 / np.sqrt(np.prod(shape[1:]) or 1)
        return self.constant(name, (scale * self._rng.standard_normal(shape)).astype(np.float32))

    def constant(self, name, value):
        self._weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, kind, inputs, output, **attributes):
        self._nodes.append(helper.make_node(kind, inputs, [output], name=f"{output}_node", **attributes))
        return output

    def save(self, path, inputs, outputs, precision="fp32"):
        def info(each):
            return helper.make_tensor_value_info(each.name, DTYPES[each.dtype], each.shape)

        graph = helper.make_graph(
            self._nodes, path.stem, [info(s) for s in inputs], [info(s) for s in outputs], self._weights
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, path)
        return OnnxSource(path, inputs, outputs, precision)


def conv_net(folder):
    """Convolution, batch norm, depthwise convolution, pooling and Gemm: 3×10×12 images to 5 logits."""
    g = Graph()
    g.node("Conv", ["image", g.weight("w1", (16, 3, 3, 3)), g.weight("b1", (16,), 0.1)], "c1", pads=[1, 1, 1, 1])
    norm = [g.constant("g", np.linspace(0.5, 1.5, 16, dtype=np.float32)), g.weight("be", (16,), 0.1)]
    norm += [g.weight("mu", (16,), 0.1), g.constant("var", np.linspace(0.8, 1.3, 16, dtype=np.float32))]
    g.node("BatchNormalization", ["c1", *norm], "n1")
    g.node("Relu", ["n1"], "r1")
    g.node("Conv", ["r1", g.weight("w2", (16, 1, 3, 3)), g.weight("b2", (16,), 0.1)], "c2", group=16, pads=[1] * 4)
    g.node("Relu", ["c2"], "r2")
    g.node("GlobalAveragePool", ["r2"], "pooled")
    g.node("Flatten", ["pooled"], "flat")
    g.node("Gemm", ["flat", g.weight("w3", (5, 16), 0.5), g.weight("b3", (5,), 0.1)], "logits", transB=1)
    return g.save(folder / "conv.onnx", (spec("image", ("batch", 3, 10, 12)),), (spec("logits", ("batch", 5)),))


def matmul_net(folder):
    """Two products with an activation between: 24 values to 6."""
    g = Graph(1)
    g.node("MatMul", ["x", g.weight("w1", (24, 32), 0.2)], "m1")
    g.node("Sigmoid", ["m1"], "s1")
    g.node("MatMul", ["s1", g.weight("w2", (32, 6), 0.2)], "y")
    return g.save(folder / "matmul.onnx", (spec("x", ("batch", 24)),), (spec("y", ("batch", 6)),))


def two_by_two_net(folder):
    """Two inputs and two outputs of one shape, which are easily mixed up."""
    g = Graph(2)
    g.node("MatMul", ["left", g.weight("w1", (16, 16))], "l1")
    g.node("MatMul", ["right", g.weight("w2", (16, 16))], "r1")
    g.node("Relu", ["l1"], "l2")
    g.node("Add", ["l2", "r1"], "sum")
    g.node("Sub", ["l1", "r1"], "difference")
    ports = [spec(name, ("batch", 16)) for name in ("left", "right", "sum", "difference")]
    return g.save(folder / "two.onnx", tuple(ports[:2]), tuple(ports[2:]))


def embedding_net(folder):
    """Token ids (int64) to 4 scores."""
    g = Graph(3)
    g.node("Gather", [g.weight("table", (50, 16), 1.0), "tokens"], "looked")
    g.node("ReduceMean", ["looked"], "mean", axes=[1], keepdims=0)
    g.node("MatMul", ["mean", g.weight("w", (16, 4), 0.5)], "scores")
    inputs = (spec("tokens", ("batch", 7), "int64"),)
    return g.save(folder / "embedding.onnx", inputs, (spec("scores", ("batch", 4)),))


def scalar_net(folder):
    """An input without batch axis scales the answer."""
    g = Graph(4)
    g.node("MatMul", ["x", g.weight("w", (16, 4), 0.5)], "m")
    g.node("Mul", ["m", "gain"], "y")
    inputs = (spec("x", ("batch", 16)), spec("gain", (), batch_axis=None))
    return g.save(folder / "scalar.onnx", inputs, (spec("y", ("batch", 4)),))


NETS = {
    "conv": conv_net,
    "matmul": matmul_net,
    "two": two_by_two_net,
    "embedding": embedding_net,
    "scalar": scalar_net,
}


@pytest.fixture(params=sorted(NETS))
def any_source(request, tmp_path):
    return NETS[request.param](tmp_path)


@pytest.fixture
def conv_source(tmp_path):
    return conv_net(tmp_path)


@pytest.fixture
def nets():
    return NETS


@pytest.fixture
def graph():
    return Graph


@pytest.fixture
def tensor_spec():
    return spec


@pytest.fixture
def onnx_source():
    return OnnxSource


@pytest.fixture
def convert() -> Callable[..., Bundle]:
    """Convert a source and describe the result as a bundle, as the pipeline does when it publishes."""
    return convert_to_bundle


def to_onnx_bundle(source, into, isa=""):
    """Make a bundle for onnxruntime-cpu of the ONNX file as it is."""
    into.mkdir(parents=True, exist_ok=True)
    shutil.copy(source.onnx_path(), into / "model.onnx")

    def port(each):
        return Port(name=each.name, engine_name=each.name, shape=each.shape, dtype=each.dtype)

    made = StageFiles(
        file="model.onnx",
        takes=tuple(port(each) for each in source.inputs),
        adds=tuple(port(each) for each in source.outputs),
        static_batch=None,
        operators=OperatorCount(total=1),
        versions={"onnxruntime": onnxruntime.__version__},
        isa=isa,
    )
    return bundle_of(made, source, into, "onnxruntime", source.precision)


def quantize_with_onnxruntime(source):
    """Make a QDQ file with scales of its own."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    calibration = source.calibration(32)

    class Rows(CalibrationDataReader):
        def __init__(self):
            self._index = 0

        def get_next(self):
            if self._index == 32:
                return None
            self._index += 1
            return {name: values[self._index - 1 : self._index] for name, values in calibration.items()}

    path = source.onnx_path().with_name(f"{source.name}_qdq.onnx")
    quantize_static(
        str(source.onnx_path()),
        str(path),
        Rows(),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        weight_type=QuantType.QInt8,
        activation_type=QuantType.QUInt8,
    )
    return OnnxSource(path, source.inputs, source.outputs, precision="int8")


@pytest.fixture
def quantized():
    return quantize_with_onnxruntime


@pytest.fixture
def onnx_bundle():
    return to_onnx_bundle


def convert_to_bundle(source, into, precision="fp32", calibration=None, isa=""):
    into.mkdir(parents=True, exist_ok=True)
    task = ConversionTask(
        source=source,
        target="openvino-cpu",
        precision=precision,
        calibration=calibration,
        into=into,
        options=ConversionOptions(isa=isa),
    )
    made = ToOpenvino().convert(task)
    return bundle_of(made, source, into, "openvino", precision)


def bundle_of(made, source, into, engine, precision):
    stage = StageSpec(
        name="all",
        file=made.file,
        takes=made.takes,
        adds=made.adds,
        exit_output=source.outputs[0].name,
        precision=precision,
        macs=None,
        parameters=0,
        file_bytes=0,
        operators=made.operators,
    )
    files = record_files(into)
    manifest = Manifest(
        schema_version=SCHEMA_VERSION,
        digest="0" * 64,
        name=source.name,
        target=f"{engine}-cpu",
        precision=precision,
        created_with=made.versions,
        source=SourceRecord(file=source.file, kind=source.kind, sha256=source.sha256),
        files=files,
        inputs=source.inputs,
        outputs=source.outputs,
        stages=(stage,),
        batch=BatchSpec(static=made.static_batch, probed=(1,), max=32),
        parity=ParityRecord(verified_on="target", tolerance=1e-4, seed=0, outputs=()),
        requires=Requirements(engine=engine, engine_version=made.versions[engine], isa=made.isa),
        golden_samples=0,
    )
    return Bundle(path=into, manifest=manifest)
