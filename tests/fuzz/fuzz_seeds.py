"""What is mutated: one good file of every kind that is read, small, and the same bytes each time.

``result.json`` and ``tuned.json`` hold times and were written once, by ``python tests/fuzz/fuzz_seeds.py``; the rest
is made when the fuzzer starts.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

WRITTEN = Path(__file__).with_name("seeds")
# Name, source, target, options of `ipj-edge convert`.
_BUNDLES = (
    ("net.onnxruntime-cpu.fp32.ipj", "net.onnx", "onnxruntime-cpu", ()),
    ("net.openvino-cpu.fp32.ipj", "net.onnx", "openvino-cpu", ()),
    ("net.tflite-cpu.fp32.ipj", "net.tflite", "tflite-cpu", ()),
    ("staged.onnxruntime-cpu.fp32.ipj", "staged.onnx", "onnxruntime-cpu", ("--split-at", "exits")),
)
TOMLS = {
    "preprocess.toml": """
size = [8, 8]
resize = "cover"
channels = "RGB"
scale = 0.003921
mean = [0.5, 0.5, 0.5]
std = [0.25, 0.25, 0.25]
layout = "NCHW"
""",
    "tariff.toml": """
pue = 1.4
intensity_g_per_kwh = 380.0
price_per_kwh = 0.3
currency = "EUR"
""",
    "suite.toml": """
name = "small"

[[sweep]]
bundles = ["*.ipj"]
scenarios = ["single-stream", "offline"]
threads = [1, 2]
batch = [4]
every = ["20ms"]
at_least = { "top-1" = "90%" }
""",
    "recipe.toml": """
[model]
factory = "net.py:build"

[data]
train = "train.npz"
val = "val.npz"

[goal]
max_accuracy_drop = "1pp"

[[step]]
do = "train"
epochs = 2

[[step]]
do = "prune"
target_macs = 0.5
""",
}
TRACE = "# a recorded trace\ntime_s,cpu_w,gpu_w\n" + "".join(f"{i / 10},{3 + i % 3},{i % 2}\n" for i in range(20))
LABELS = "zero\none\ntwo\nthree\n"


def make_seeds(folder: Path) -> None:
    """Fill a folder with all seeds; some seconds of CPU."""
    (folder / "net.onnx").write_bytes(_onnx(staged=False))
    (folder / "staged.onnx").write_bytes(_onnx(staged=True))
    (folder / "net.tflite").write_bytes(_tflite())
    (folder / "data.npz").write_bytes(npz({"image": _images(24), "labels": np.arange(24) % 4}))
    for name, text in TOMLS.items():
        (folder / name).write_text(text.lstrip())
    (folder / "trace.csv").write_text(TRACE)
    (folder / "labels.txt").write_text(LABELS)
    _write_pictures(folder)
    for name, source, target, options in _BUNDLES:
        _convert(folder, name, source, target, "--labels", str(folder / "labels.txt"), *options)
    for written in WRITTEN.iterdir():
        shutil.copy(written, folder)
    if (folder / "tuned.json").exists():
        _write_exits(folder)


def npz(arrays: dict[str, Any]) -> bytes:
    """Return the bytes of an .npz file."""
    stream = BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def _images(count: int) -> Any:
    return np.random.default_rng(0).random((count, 3, 8, 8), np.float32)


def _onnx(*, staged: bool) -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(1)

    def weight(name: str, *shape: int) -> Any:
        return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32) / 4, name)

    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["c1"], pads=[1, 1, 1, 1], name="conv1"),
        helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
        helper.make_node("GlobalAveragePool", ["r1"], ["g1"]),
        helper.make_node("Flatten", ["g1"], ["f1"]),
        helper.make_node("Gemm", ["f1", "w2"], ["early" if staged else "logits"], name="head1"),
    ]
    weights = [weight("w1", 6, 3, 3, 3), weight("w2", 6, 4)]
    outputs = [helper.make_tensor_value_info("early" if staged else "logits", TensorProto.FLOAT, ["batch", 4])]
    if staged:
        nodes += [
            helper.make_node("Conv", ["r1", "w3"], ["c2"], pads=[1, 1, 1, 1], name="conv2"),
            helper.make_node("GlobalAveragePool", ["c2"], ["g2"]),
            helper.make_node("Flatten", ["g2"], ["f2"]),
            helper.make_node("Gemm", ["f2", "w4"], ["logits"], name="head2"),
        ]
        weights += [weight("w3", 8, 6, 3, 3), weight("w4", 8, 4)]
        outputs.append(helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 4]))
    taken = [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 8, 8])]
    graph = helper.make_graph(nodes, "net", taken, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString(deterministic=True))


def _tflite() -> bytes:
    """Return a fully connected layer on 12 numbers."""
    from ai_edge_litert import schema_py_generated as schema

    from ipj_edge_converters.tflite.file import pack

    rng = np.random.default_rng(2)
    model, graph = schema.ModelT(), schema.SubGraphT()
    model.version, model.subgraphs, model.buffers = 3, [graph], [schema.BufferT()]
    graph.tensors, graph.inputs, graph.outputs = [], [0], [3]
    arrays = {"x": None, "w": rng.standard_normal((4, 12)), "b": rng.standard_normal(4), "logits": None}
    for name, shape in {"x": [1, 12], "w": [4, 12], "b": [4], "logits": [1, 4]}.items():
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.type, tensor.buffer = name.encode(), shape, schema.TensorType.FLOAT32, 0
        if arrays[name] is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(arrays[name].astype(np.float32).tobytes(), np.uint8)
            tensor.buffer = len(model.buffers)
            model.buffers.append(buffer)
        graph.tensors.append(tensor)
    code, operator = schema.OperatorCodeT(), schema.OperatorT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.FULLY_CONNECTED
    code.version = 1
    operator.opcodeIndex, operator.inputs, operator.outputs = 0, [0, 1, 2], [3]
    operator.builtinOptionsType = schema.BuiltinOptions.FullyConnectedOptions
    operator.builtinOptions = schema.FullyConnectedOptionsT()
    model.operatorCodes, graph.operators = [code], [operator]
    return pack(model)


def _write_pictures(folder: Path) -> None:
    from PIL import Image

    pixels = (np.random.default_rng(3).random((12, 16, 3)) * 255).astype(np.uint8)
    for suffix in ("png", "jpg", "gif", "tiff", "webp", "bmp"):
        Image.fromarray(pixels).save(folder / f"picture.{suffix}")


def _convert(folder: Path, name: str, source: str, target: str, *options: str) -> None:
    from ipj_edge.cli import exit_code_of

    into = folder / "made"
    arguments = ["convert", str(folder / source), "--target", target, "-o", str(into), *options]
    if exit_code_of(arguments) != 0:
        raise RuntimeError(f"the seed {name} cannot be made")
    (made,) = into.iterdir()
    made.rename(folder / name)
    into.rmdir()


def _write_exits(folder: Path) -> None:
    """Give the bundle with two exits the policy of ``tuned.json``, as if it had been tuned here."""
    from ipj_edge.bundles.bundle import open_bundle
    from ipj_edge.exits import TunedBundle, engine_files, tuned_under, write_exits
    from ipj_edge.runtime.model import load

    bundle = folder / "staged.onnxruntime-cpu.fp32.ipj"
    record = msgspec.json.decode((folder / "tuned.json").read_bytes(), type=TunedBundle).record
    with load(bundle, exits="off") as model:
        settings = tuned_under(model.effective)
    files = engine_files(open_bundle(bundle).manifest)
    certificate = msgspec.structs.replace(record.certificate, files=files, settings=settings)
    write_exits(bundle, msgspec.structs.replace(record, certificate=certificate))


def _write_again() -> None:
    """Measure ``result.json`` and ``tuned.json`` anew, after a change of their schemas."""
    from ipj_edge.cli import exit_code_of

    WRITTEN.mkdir(exist_ok=True)
    for old in WRITTEN.iterdir():
        old.unlink()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_seeds(folder)
        bundles = [str(folder / "net.onnxruntime-cpu.fp32.ipj"), str(folder / "staged.onnxruntime-cpu.fp32.ipj")]
        brief = ["--data", str(folder / "data.npz"), "--probe", "modelled", "--windows", "2"]
        code = exit_code_of(["bench", *bundles, *brief, "--window", "0.05", "--json", str(WRITTEN / "result.json")])
        tuned = ["exits", "tune", bundles[1], *brief, "--no-certificate", "--json", str(WRITTEN / "tuned.json")]
        code = code or exit_code_of(tuned)
    (WRITTEN / "result.samples.npz").unlink(missing_ok=True)
    if code:
        sys.exit(f"the seeds were not written: exit code {code}")


if __name__ == "__main__":
    _write_again()
