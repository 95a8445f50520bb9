"""Multi-exit networks of a few operators, and the engines that run them whole and as a chain of stages."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from ipj_edge.plugins import without_telemetry
from ipj_edge.protocols import StageCut
from ipj_edge.values import TensorSpec

with without_telemetry():
    import onnxruntime
    import openvino

Arrays = dict[str, np.ndarray]
ROOT = Path(__file__).resolve().parents[3]


class Network(NamedTuple):
    """An ONNX network written as text.

    Attributes:
        text: Signature and nodes, in the syntax of ``onnx.parser``.
        weights: Shapes of the weights it names.
        exits: Its outputs, in the order of depth.
        inputs: Its inputs.
    """

    text: str
    weights: dict[str, tuple[int, ...]]
    exits: tuple[str, ...]
    inputs: tuple[TensorSpec, ...]


def _image(name: str = "x", *sizes: int | str) -> TensorSpec:
    return TensorSpec(name=name, shape=sizes or ("batch", 3, 8, 10), dtype="float32")


# Head of an exit: pooling and a linear layer.
def _head(taken: str, exit_: str, number: int) -> str:
    return f"""
        {exit_}_pooled = GlobalAveragePool({taken})
        {exit_}_flat = Flatten({exit_}_pooled)
        {exit_} = Gemm({exit_}_flat, h{number}, g{number})
    """


NETWORKS = {
    # Two scales, several tensors per cut, and a skip from stage 1 that only stage 3 reads.
    "two-scales": Network(
        f"""net (float[batch,3,8,10] x) => (float[batch,5] e1, float[batch,5] e2, float[batch,5] end) {{
            wide = Conv<pads=[1,1,1,1]>(x, w1)
            fine = Relu(wide)
            coarse = MaxPool<kernel_shape=[2,2], strides=[2,2]>(fine)
            {_head("coarse", "e1", 1)}
            wide2 = Conv<pads=[1,1,1,1]>(fine, w2)
            fine2 = Relu(wide2)
            down = Conv<pads=[1,1,1,1], strides=[2,2]>(fine2, w3)
            both = Concat<axis=1>(down, coarse)
            coarse2 = Relu(both)
            {_head("coarse2", "e2", 2)}
            deep = Conv<pads=[1,1,1,1]>(coarse2, w4)
            skip = Conv<pads=[1,1,1,1], strides=[2,2]>(fine, w5)
            sum = Add(deep, skip)
            last = Relu(sum)
            {_head("last", "end", 3)}
        }}""",
        {"w1": (6, 3, 3, 3), "w2": (6, 6, 3, 3), "w3": (4, 6, 3, 3), "w4": (7, 10, 3, 3), "w5": (7, 6, 3, 3),
         "h1": (6, 5), "g1": (5,), "h2": (10, 5), "g2": (5,), "h3": (7, 5), "g3": (5,)},
        ("e1", "e2", "end"),
        (_image(),),
    ),
    # The head and the trunk share the activation and the pooling behind it.
    "shared-operator": Network(
        f"""net (float[batch,3,8,10] x) => (float[batch,5] e1, float[batch,5] end) {{
            a = Conv<pads=[1,1,1,1]>(x, w1)
            r = Relu(a)
            shared = AveragePool<kernel_shape=[2,2], strides=[2,2]>(r)
            {_head("shared", "e1", 1)}
            b = Conv<pads=[1,1,1,1]>(shared, w2)
            {_head("b", "end", 2)}
        }}""",
        {"w1": (6, 3, 3, 3), "w2": (7, 6, 3, 3), "h1": (6, 5), "g1": (5,), "h2": (7, 5), "g2": (5,)},
        ("e1", "end"),
        (_image(),),
    ),
    # Both stages reshape to a shape computed from the batch of a tensor that only stage 1 has.
    "computed-shape": Network(
        """net (float[batch,3,8,10] x) => (float[batch,5] e1, float[batch,5] end)
        <int64[1] first = {0}, int64[1] rest = {-1}, int64[1] five = {5}, int64 row = {0}> {
            a = Conv<pads=[1,1,1,1]>(x, w1)
            size = Shape(a)
            rows = Gather(size, first)
            target = Concat<axis=0>(rows, rest)
            b = Conv<pads=[1,1,1,1]>(a, w2)
            r = Relu(b)
            flat = Reshape(r, target)
            e1 = Gemm(flat, h1, g1)
            c = Conv<pads=[1,1,1,1]>(r, w3)
            flat2 = Reshape(c, target)
            count = Gather(size, row)
            counts = Unsqueeze(count, first)
            zeros_shape = Concat<axis=0>(counts, five)
            zeros = ConstantOfShape(zeros_shape)
            logits = Gemm(flat2, h2, g2)
            end = Add(logits, zeros)
        }""",
        {"w1": (4, 3, 3, 3), "w2": (2, 4, 3, 3), "w3": (3, 2, 3, 3), "h1": (160, 5), "g1": (5,), "h2": (240, 5),
         "g2": (5,)},
        ("e1", "end"),
        (_image(),),
    ),
    # Attention heads are merged into the batch, so the tensor between has no batch axis of its own.
    "merged-heads": Network(
        """net (float[batch,6,8] x) => (float[batch,5] e1, float[batch,5] end)
        <int64[4] split = {0, 6, 2, 4}, int64[3] merge = {-1, 6, 4}, int64[2] rows = {-1, 48}> {
            a = MatMul(x, w1)
            s = Reshape(a, split)
            t = Transpose<perm=[0,2,1,3]>(s)
            merged = Reshape(t, merge)
            p = MatMul(merged, w2)
            back = Reshape(p, rows)
            e1 = Gemm(back, h1, g1)
            q = MatMul(merged, w3)
            back2 = Reshape(q, rows)
            r = Relu(back2)
            end = Gemm(r, h2, g2)
        }""",
        {"w1": (8, 8), "w2": (4, 4), "w3": (4, 4), "h1": (48, 5), "g1": (5,), "h2": (48, 5), "g2": (5,)},
        ("e1", "end"),
        (_image("x", "batch", 6, 8),),
    ),
    # The last stage reads an input of its own, and a setting without a batch axis that stage 1 reads too.
    "more-inputs": Network(
        f"""net (float[batch,3,8,10] x, float[batch,7,8,10] y, float gain) => (float[batch,5] e1, float[batch,5] end) {{
            a = Conv<pads=[1,1,1,1]>(x, w1)
            b = Mul(a, gain)
            {_head("b", "e1", 1)}
            c = Conv<pads=[1,1,1,1]>(b, w2)
            d = Add(c, y)
            f = Mul(d, gain)
            {_head("f", "end", 2)}
        }}""",
        {"w1": (6, 3, 3, 3), "w2": (7, 6, 3, 3), "h1": (6, 5), "g1": (5,), "h2": (7, 5), "g2": (5,)},
        ("e1", "end"),
        (_image(), _image("y", "batch", 7, 8, 10), TensorSpec(name="gain", shape=(), dtype="float32", batch_axis=None)),
    ),
    # A branch of the last stage captures a tensor of stage 1.
    "captured": Network(
        f"""net (float[batch,3,8,10] x) => (float[batch,5] e1, float[batch,5] end)
        <bool always = {{1}}> {{
            a = Conv<pads=[1,1,1,1]>(x, w1)
            {_head("a", "e1", 1)}
            b = If(always) <
                then_branch = yes () => (float[batch,6,8,10] p) {{ p = Relu(a) }},
                else_branch = no () => (float[batch,6,8,10] q) {{ q = Neg(a) }}
            >
            c = Conv<pads=[1,1,1,1]>(b, w2)
            {_head("c", "end", 2)}
        }}""",
        {"w1": (6, 3, 3, 3), "w2": (7, 6, 3, 3), "h1": (6, 5), "g1": (5,), "h2": (7, 5), "g2": (5,)},
        ("e1", "end"),
        (_image(),),
    ),
    # A head takes the mean over the tokens of the very tensor that is handed over.
    "tokens": Network(
        """net (float[batch,12,8] x) => (float[batch,5] e1, float[batch,5] end) {
            a = MatMul(x, w1)
            r = LayerNormalization<axis=-1>(a, gain, shift)
            m = ReduceMean<axes=[1], keepdims=0>(r)
            e1 = Gemm(m, h1, g1)
            b = MatMul(r, w2)
            n = ReduceMean<axes=[2], keepdims=0>(b)
            end = Gemm(n, h2, g2)
        }""",
        {"w1": (8, 32), "gain": (32,), "shift": (32,), "w2": (32, 7), "h1": (32, 5), "g1": (5,), "h2": (12, 5),
         "g2": (5,)},
        ("e1", "end"),
        (_image("x", "batch", 12, 8),),
    ),
    # The samples are on the second axis of the input and of what is handed over.
    "batch-second": Network(
        """net (float[4,batch,8] x) => (float[batch,5] e1, float[batch,5] end)
        <int64[1] zero = {0}> {
            a = MatMul(x, w1)
            r = Relu(a)
            m = ReduceMean<axes=[0], keepdims=0>(r)
            e1 = Gemm(m, h1, g1)
            b = MatMul(r, w2)
            n = ReduceMean<axes=[0], keepdims=0>(b)
            end = Gemm(n, h2, g2)
        }""",
        {"w1": (8, 6), "w2": (6, 7), "h1": (6, 5), "g1": (5,), "h2": (7, 5), "g2": (5,)},
        ("e1", "end"),
        (TensorSpec(name="x", shape=(4, "batch", 8), dtype="float32", batch_axis=1),),
    ),
}  # fmt: skip


def _model(network: Network, seed: int = 7) -> onnx.ModelProto:
    random = np.random.default_rng(seed)
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {network.text}')
    for name, shape in network.weights.items():
        values = (random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1)).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    onnx.checker.check_model(model)
    return model


@pytest.fixture(scope="session")
def networks() -> dict[str, Network]:
    return NETWORKS


@pytest.fixture(scope="session")
def model_of() -> Callable[..., onnx.ModelProto]:
    """Make the ONNX model of a network, with seeded weights."""
    return _model


@pytest.fixture(scope="session")
def network_of() -> Callable[..., Network]:
    """Describe a network of one image input: ``network_of(text, weights, exits)``."""

    def make(text: str, weights: dict[str, tuple[int, ...]], exits: Sequence[str], *sizes: int | str) -> Network:
        return Network(text, weights, tuple(exits), (_image("x", *sizes),))

    return make


@pytest.fixture(scope="session")
def feeds_of() -> Callable[..., Arrays]:
    """Draw seeded inputs of a network for a batch."""

    def draw(network: Network, batch: int) -> Arrays:
        random = np.random.default_rng(batch)
        return {
            spec.name: np.asarray(
                random.standard_normal([batch if isinstance(size, str) else size for size in spec.shape]) + 0.3,
                spec.dtype,
            )
            for spec in network.inputs
        }

    return draw


class OnnxruntimeFiles:
    """Runs ONNX files by onnxruntime as the target does, one thread. A file is loaded once."""

    def __init__(self) -> None:
        self._sessions: dict[Path, Any] = {}

    def run(self, path: Path, feeds: Arrays) -> Arrays:
        session = self._sessions.get(path) or self._sessions.setdefault(path, self._load(path))
        names = [value.name for value in session.get_outputs()]
        return dict(zip(names, session.run(names, feeds), strict=True))

    def _load(self, path: Path) -> Any:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


class OpenvinoFiles:
    """Runs ONNX files and IR by openvino as the target does: f32, one thread, a program of its own for batch 1."""

    def __init__(self) -> None:
        self._requests: dict[tuple[Path, bool], Any] = {}

    def run(self, path: Path, feeds: Arrays) -> Arrays:
        single = all(len(array) == 1 for array in feeds.values() if array.ndim)
        if (path, single) not in self._requests:
            self._requests[path, single] = self._load(path, feeds if single else {})
        request = self._requests[path, single]
        answers = request.infer(feeds)
        return {name: answers[port].copy() for port in request.model_outputs for name in port.get_names()}

    def _load(self, path: Path, shapes: Arrays) -> Any:
        core = openvino.Core()
        model = core.read_model(path) if path.suffix == ".xml" else openvino.convert_model(path)
        if shapes:
            model.reshape({name: list(array.shape) for name, array in shapes.items()})
        config = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
        return core.compile_model(model, "CPU", config).create_infer_request()


@pytest.fixture(params=[OnnxruntimeFiles, OpenvinoFiles], ids=["onnxruntime", "openvino"])
def engine(request: pytest.FixtureRequest) -> Any:
    """Each engine that runs ONNX files, in turn."""
    return request.param()


@pytest.fixture
def onnxruntime_files() -> OnnxruntimeFiles:
    return OnnxruntimeFiles()


@pytest.fixture
def openvino_files() -> OpenvinoFiles:
    return OpenvinoFiles()


@pytest.fixture(scope="session")
def run_chain() -> Callable[..., Arrays]:
    """Run stages one after another over a pool of tensors, each checked against its port; return the pool."""

    def run(engine: Any, folder: Path, cuts: Sequence[StageCut], feeds: Arrays) -> Arrays:
        pool = dict(feeds)
        for cut in cuts:
            answers = engine.run(folder / cut.file, {port.engine_name: pool[port.name] for port in cut.takes})
            for port in cut.adds:
                pool[port.name] = answers[port.engine_name]
                _check(pool[port.name], port)
        return pool

    return run


@pytest.fixture(scope="session")
def assert_chain_equals(run_chain: Callable[..., Arrays]) -> Callable[..., None]:
    """Hold a chain of stages against the whole file, bit for bit, at every exit."""

    def check(engine: Any, whole: Path, folder: Path, cuts: Sequence[StageCut], feeds: Arrays) -> None:
        expected, found = engine.run(whole, feeds), run_chain(engine, folder, cuts, feeds)
        for cut in cuts:
            np.testing.assert_array_equal(found[cut.exit_output], expected[cut.exit_output])
            assert expected[cut.exit_output].std() > 0

    return check


def _check(array: np.ndarray, port: Any) -> None:
    assert array.dtype.name == port.dtype, port
    assert all(isinstance(stated, str) or size == stated for size, stated in zip(array.shape, port.shape, strict=True))


@pytest.fixture(scope="session")
def resnet20_exits() -> Any:
    """The module of the benchmarks' network: ResNet-20 with three exits."""
    spec = importlib.util.spec_from_file_location("resnet20_exits", ROOT / "benchmarks/exits/resnet20_exits.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
