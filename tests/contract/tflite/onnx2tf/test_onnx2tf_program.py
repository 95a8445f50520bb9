"""The protocol of the program onnx2tf, spoken by a stand-in on PATH that keeps a record of how it was called."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ipj_edge
from ipj_edge.conversion import ConvertRequest, Outcome, convert
from ipj_edge.conversion.plan.request import take_options
from ipj_edge.errors import ConversionError, TargetUnavailableError, UnsupportedError
from ipj_edge_converters.tflite.onnx2tf.program import VERSION


def same_size_everywhere(folder: Path) -> Path:
    """An ONNX file whose output, 5 channels of 5×5, fits its own layout and channels last alike."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal((5, 3, 3, 3)).astype(np.float32), "w"),
        numpy_helper.from_array(rng.standard_normal(5).astype(np.float32), "b"),
    ]
    graph = helper.make_graph(
        [helper.make_node("Conv", ["pixels:0", "w", "b"], ["maps:0"], pads=[1, 1, 1, 1], name="conv")],
        "same",
        [helper.make_tensor_value_info("pixels:0", TensorProto.FLOAT, ["batch", 3, 5, 5])],
        [helper.make_tensor_value_info("maps:0", TensorProto.FLOAT, ["batch", 5, 5, 5])],
        weights,
    )
    path = folder / "same.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def tflite_of(path: Path, *, order: tuple[int, ...]) -> bytes:
    """Return a real .tflite file of that model whose output has its axes in another order, as onnx2tf leaves them."""
    import torch

    from ipj_edge_converters.tflite.litert_quiet import quiet_litert

    tensors = {each.name: numpy_helper.to_array(each) for each in onnx.load(path).graph.initializer}

    class Turned(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            w, b = (torch.from_numpy(tensors[name].copy()) for name in ("w", "b"))
            return torch.nn.functional.conv2d(x, w, b, padding=1).permute(*order)

    with quiet_litert():
        import litert_torch

        made: bytes = litert_torch.convert(Turned().eval(), (torch.zeros(1, 3, 5, 5),)).model_content()
    return made


Fake = Callable[..., Path]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Put a program named onnx2tf on PATH; returns the file it records its calls in."""
    folder, record = tmp_path / "bin", tmp_path / "calls.json"
    folder.mkdir()

    def install(*, output: bytes | None = None, code: int = 0, says: str = "") -> Path:
        made = tmp_path / "made.tflite"
        made.write_bytes(output or b"")
        program = folder / "onnx2tf"
        program.write_text(
            f"#!{sys.executable}\n"
            + textwrap.dedent(
                f"""
                import json, pathlib, shutil, sys
                if sys.argv[1:] == ["-V"]:
                    print("2.6.9")
                    sys.exit(0)
                given = pathlib.Path(sys.argv[sys.argv.index("-i") + 1])
                calls = {{"arguments": sys.argv[1:], "bytes": given.stat().st_size, "folder": str(pathlib.Path.cwd())}}
                pathlib.Path({str(record)!r}).write_text(json.dumps(calls))
                given.write_bytes(b"overwritten, as the real one does")
                print({says!r})
                if {output is not None}:
                    into = pathlib.Path(sys.argv[sys.argv.index("-o") + 1])
                    into.mkdir()
                    shutil.copy({str(made)!r}, into / "model_float32.tflite")
                sys.exit({code})
                """
            )
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))
        return record

    return install


@pytest.fixture
def converted(tmp_path: Path) -> Callable[..., Outcome]:
    def run(source: Path, **options: object) -> Outcome:
        (outcome,) = convert(
            ConvertRequest(
                source=str(source),
                targets=("tflite-cpu",),
                into=tmp_path / "dist",
                options=take_options(options),
                **options,
            )
        )
        return outcome

    return run


def test_without_the_program_the_exact_way_to_get_it_is_told(tmp_path, monkeypatch, converted):
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome = converted(same_size_everywhere(tmp_path))
    assert isinstance(outcome.error, TargetUnavailableError)
    assert outcome.error.exit_code == 6
    assert "tools/install-onnx2tf" in str(outcome.error)
    assert f"onnx2tf=={VERSION}" in str(outcome.error)


def test_the_program_gets_a_copy_and_names_to_keep(tmp_path, fake, converted):
    source = same_size_everywhere(tmp_path)
    before = source.read_bytes()
    record = fake(output=tflite_of(source, order=(0, 1, 2, 3)))
    outcome = converted(source)
    assert outcome.bundle is not None, outcome.error
    call = json.loads(record.read_text())
    assert source.read_bytes() == before
    assert call["arguments"] == ["-i", "model.onnx", "-o", "made", "-n", "-kat", "args_0"]
    assert Path(call["folder"]) != source.parent
    assert outcome.bundle.manifest.created_with["onnx2tf"] == "2.6.9"


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1), (0, 3, 2, 1)], ids=["as is", "last", "turned"])
def test_a_layout_that_sizes_do_not_show_is_settled_by_answers(tmp_path, fake, converted, order):
    source = same_size_everywhere(tmp_path)
    fake(output=tflite_of(source, order=order))
    outcome = converted(source)
    assert outcome.bundle is not None, outcome.error
    x = np.random.default_rng(1).random((2, 3, 5, 5), dtype=np.float32)
    tensors = {each.name: numpy_helper.to_array(each) for each in onnx.load(source).graph.initializer}
    with ipj_edge.load(outcome.bundle.path) as model:
        found = model.run(x).outputs["maps:0"]
    centre = np.einsum("nchw,ochw->no", x[:, :, 1:4, 1:4], tensors["w"]) + tensors["b"]
    np.testing.assert_allclose(found[:, :, 2, 2], centre, rtol=1e-4, atol=1e-5)


def test_a_file_that_answers_otherwise_in_every_layout_is_refused(tmp_path, fake, converted):
    source = same_size_everywhere(tmp_path)
    (tmp_path / "other").mkdir()
    other = same_size_everywhere(tmp_path / "other")
    model = onnx.load(other)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((5, 3, 3, 3), np.float32), "w"))
    onnx.save(model, other)
    fake(output=tflite_of(other, order=(0, 2, 3, 1)))
    outcome = converted(source)
    assert isinstance(outcome.error, ConversionError)
    assert "whichever way its axes are read" in str(outcome.error)


def test_exit_code_0_without_a_file_is_a_failure(tmp_path, fake, converted):
    fake(says="ERROR: something went wrong inside")
    outcome = converted(same_size_everywhere(tmp_path))
    assert isinstance(outcome.error, ConversionError)
    assert "exit code 0, but no file" in str(outcome.error)
    assert "something went wrong inside" in str(outcome.error)


def test_a_file_left_by_a_run_that_failed_is_not_taken(tmp_path, fake, converted):
    source = same_size_everywhere(tmp_path)
    fake(output=tflite_of(source, order=(0, 1, 2, 3)), code=1, says="ValueError: late")
    outcome = converted(source)
    assert outcome.error is not None
    assert outcome.error.exit_code == 4
    assert "exit code 1" in str(outcome.error)


def test_an_operator_the_program_lacks_is_named(tmp_path, fake, converted):
    fake(says="ERROR: unsupported ONNX op: op=Det node=det_1", code=1)
    outcome = converted(same_size_everywhere(tmp_path))
    assert isinstance(outcome.error, UnsupportedError)
    assert outcome.error.operators == ("Det",)


@pytest.mark.data
def test_a_quantized_model_is_not_given_to_it(data_folder, fake, converted):
    record = fake()
    outcome = converted(data_folder / "models/cifar10_resnet20/resnet20_cifar10_int8_qdq.onnx")
    assert outcome.error is not None
    assert outcome.error.exit_code == 6
    assert not record.exists()


def test_the_installer_refuses_without_a_python_that_is_new_enough(tmp_path):
    import subprocess

    script = Path(__file__).parents[4] / "tools" / "install-onnx2tf"
    shell = shutil.which("sh")
    assert shell is not None
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    ran = subprocess.run(
        [shell, script, tmp_path / "into"], capture_output=True, text=True, env=environment, check=False
    )
    assert ran.returncode == 6, ran
    assert "Python 3.12" in ran.stderr
    assert not (tmp_path / "into").exists()
