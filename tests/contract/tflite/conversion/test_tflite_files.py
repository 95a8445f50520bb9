"""The files: buffers inside and aligned, the same bytes each time, no paths; and what is read from them."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from ipj_edge.errors import ConversionError
from ipj_edge_converters.tflite import file as tflite_file


@pytest.fixture
def large_net(net_source, spec):
    """A net of 0.4 MB as int8: beyond the 256 KiB from which ai-edge-quantizer puts buffers outside."""
    torch.manual_seed(0)
    return net_source(
        lambda first, second, x: (second(torch.relu(first(x))),),
        nn.Linear(300, 1000),
        nn.Linear(1000, 100),
        inputs=(spec("x", 300),),
    )


def buffers_of(data: bytes) -> list:
    return tflite_file.parse(data).buffers


def test_a_large_int8_file_keeps_its_buffers_inside(converted, large_net, samples):
    made = converted(large_net, "int8", samples(large_net, 20))
    assert len(made.data) > 256 * 1024
    assert all((buffer.offset, buffer.size) == (0, 0) for buffer in buffers_of(made.data))
    assert made.relative_l2(samples(large_net, 10, seed=2))["y"] < 0.05


# In a process of its own: openvino's telemetry forks, which jax, loaded by litert-torch, warns about.
_OPENVINO = """
import sys
import numpy as np, openvino
program = openvino.Core().compile_model(sys.argv[1], "CPU")
np.save(sys.argv[3], next(iter(program([np.load(sys.argv[2])]).values())))
"""


@pytest.mark.slow
def test_a_large_int8_file_can_be_read_by_openvino(converted, large_net, samples, tmp_path):
    if find_spec("openvino") is None:
        pytest.skip("openvino is not installed")
    made = converted(large_net, "int8", samples(large_net, 20))
    x = np.random.default_rng(3).integers(-128, 128, (1, 300)).astype(np.int8)
    np.save(tmp_path / "x.npy", x)
    paths = [str(made.folder / made.files.file), str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
    subprocess.run([sys.executable, "-c", _OPENVINO, *paths], check=True)
    theirs, ours = np.load(tmp_path / "y.npy").astype(int), made.session.run({"x": x})["y"].astype(int)
    assert np.ptp(ours) > 50
    # The two engines round intermediate int8 values differently.
    assert np.abs(theirs - ours).max() <= 3


def test_weights_lie_at_multiples_of_sixteen_bytes(converted, large_net, samples):
    data = converted(large_net, "int8", samples(large_net, 20)).data
    weights = [bytes(buffer.data) for buffer in buffers_of(data) if buffer.data is not None and len(buffer.data) > 64]
    assert len(weights) >= 4
    assert [data.index(content) % 16 for content in weights] == [0] * len(weights)


def test_inlining_leaves_an_inline_file_as_it_is(converted, large_net):
    data = converted(large_net).data
    assert tflite_file.inlined(data) is data


@pytest.mark.parametrize(
    "data", [b"", b"not a model at all", b"\x1c\x00\x00\x00TFL3", b"\xff\xff\xff\x00TFL3" + bytes(40)]
)
def test_bytes_that_are_no_model_are_an_error(data):
    with pytest.raises(ConversionError, match="convert the model again"):
        tflite_file.read_facts(data)


def test_a_file_with_a_buffer_behind_its_end_is_an_error(converted, large_net):
    model = tflite_file.parse(converted(large_net).data)
    import flatbuffers

    model.buffers[1].offset, model.buffers[1].size, model.buffers[1].data = 10_000_000, 16, None
    builder = flatbuffers.Builder(0)
    builder.Finish(model.Pack(builder), b"TFL3")
    with pytest.raises(ConversionError, match="cut short"):
        tflite_file.inlined(bytes(builder.Output()))


_CONVERT = """
import logging, sys
logging.basicConfig(level=logging.WARNING)
from pathlib import Path
from types import SimpleNamespace
import numpy as np, torch
from ipj_edge.protocols import ConversionTask
from ipj_edge.values import TensorSpec
from ipj_edge_converters.tflite.convert import ToTflite

torch.manual_seed(0)
module = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(),
    torch.nn.Linear(120, 400), torch.nn.Linear(400, 700),
).eval()
class Tuple(torch.nn.Module):
    def __init__(self): super().__init__(); self.inner = module
    def forward(self, x): return (self.inner(x),)
source = SimpleNamespace(
    inputs=(TensorSpec(name="x", shape=("batch", 3, 5, 7), dtype="float32"),),
    outputs=(TensorSpec(name="y", shape=("batch", 700), dtype="float32"),),
    torch_module=lambda: Tuple().eval(),
)
calibration = {"x": np.random.default_rng(1).standard_normal((20, 3, 5, 7)).astype("float32")}
for precision in ("fp32", "int8"):
    into = Path(sys.argv[1]) / precision
    into.mkdir(parents=True)
    task = dict(source=source, target="tflite-cpu", precision=precision, calibration=calibration, into=into)
    ToTflite().convert(ConversionTask(**task))
"""


def convert_in_a_fresh_process(folder: Path, seed: str) -> tuple[dict[str, str], str]:
    """Return the hashes of both files, and everything the process said."""
    process = subprocess.run(
        [sys.executable, "-c", _CONVERT, str(folder)],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    hashes = {path.parent.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*.tflite")}
    return hashes, process.stdout + process.stderr


@pytest.mark.slow
def test_two_fresh_processes_write_the_same_bytes_and_say_nothing(tmp_path):
    first, said = convert_in_a_fresh_process(tmp_path / "first", "1")
    second, _ = convert_in_a_fresh_process(tmp_path / "elsewhere" / "second", "2")
    assert first == second
    assert set(first) == {"fp32", "int8"}
    assert [line for line in said.splitlines() if "XNNPACK delegate" not in line] == []
    for path in tmp_path.rglob("*.tflite"):
        # The words a path of this machine would begin with.
        assert not re.search(rb"/(?:home|root|tmp|usr|work|var)/|site-packages|\.py\b", path.read_bytes())


@pytest.mark.data
@pytest.mark.parametrize(
    ("file", "dtype", "float_share"),
    [
        ("mlperf_tiny/vww_96_int8.tflite", "int8", 0),
        ("mlperf_tiny/kws_ref_model.tflite", "int8", 0),
        ("mlperf_tiny/ad01_fp32.tflite", "float32", 1),
    ],
)
def test_real_models_show_which_operators_compute_in_floating_point(data_folder, file, dtype, float_share):
    model = tflite_file.parse((data_folder / "models" / file).read_bytes())
    operators = tflite_file.count_operators(model)
    (graph,) = model.subgraphs
    assert tflite_file.dtype_of(graph.tensors[graph.inputs[0]]) == dtype
    assert operators.total > 5
    assert len(operators.float_operators) == float_share * operators.total


@pytest.mark.data
def test_products_of_float_data_and_int8_weights_compute_in_integers(data_folder):
    """A file called float32 whose convolutions have int8 weights; its depthwise and dense layers do not."""
    path = data_folder / "models/mlperf_tiny/kws_ref_model_float32.tflite"
    operators = tflite_file.count_operators(tflite_file.parse(path.read_bytes()))
    assert (operators.total, len(operators.float_operators)) == (13, 8)
    assert not any(name.startswith("CONV_2D") for name in operators.float_operators)


@pytest.mark.data
def test_a_custom_operator_is_read_by_its_own_name(data_folder):
    data = (data_folder / "models" / "coral/mobilenet_v1_0.25_128_quant_edgetpu.tflite").read_bytes()
    assert "edgetpu-custom-op" in tflite_file.operator_names(tflite_file.parse(data))
