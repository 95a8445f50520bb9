"""Bad input to ``ipj-edge convert``: one clear line, the right exit code, nothing published or overwritten."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command_line import Ran, ended, lines_until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def convert(
    ipj_edge_cli: Callable, ipj_edge_here: Callable, digits_arguments: list[str], tmp_path: Path
) -> Callable[..., Ran]:
    """Run ``convert`` on the digits example with replaced or additional options; check that nothing was published."""

    def run(
        *options: object,
        without: tuple[str, ...] = (),
        code: int,
        source: str | None = None,
        keeps: int = 0,
        fresh: bool = False,
    ) -> Ran:
        arguments = list(digits_arguments)
        for name in without:
            at = arguments.index(name)
            del arguments[at : at + 2]
        if source is not None:
            arguments[0] = source
        ipj_edge = ipj_edge_cli if fresh else ipj_edge_here
        ran = ipj_edge("convert", *arguments, *options, "-o", tmp_path / "dist")
        assert ran.code == code, ran
        left = list((tmp_path / "dist").glob("*")) + list((tmp_path / "dist").glob(".*"))
        assert len(left) == keeps, left
        # A traceback is shown only when it is the user's own.
        assert "Traceback (most recent call last)" not in ran.err or "raised:" in ran.err, ran
        return ran

    return run


INT8 = ("--precision", "int8", "--target", "onnxruntime-cpu")


def test_a_missing_source(convert: Callable) -> None:
    assert "nowhere.py" in convert(*INT8, source="nowhere.py:build", code=2, fresh=True).err
    assert "nowhere.onnx" in convert(*INT8, source="nowhere.onnx", without=("--weights", "--input"), code=2).err
    assert "no such file" in convert(*INT8, source="nowhere", code=2).err


@pytest.mark.parametrize("name", ["bad.onnx", "bad.pt2"])
def test_a_corrupt_source(convert: Callable, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"this is no model" * 10)
    ran = convert(*INT8, source=str(tmp_path / name), without=("--weights", "--input"), code=2)
    assert name in ran.err


def test_weights_that_do_not_fit_name_the_keys(convert: Callable, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    save_file({"elsewhere.weight": torch.zeros(3)}, tmp_path / "other.safetensors")
    ran = convert(*INT8, "--weights", tmp_path / "other.safetensors", without=("--weights",), code=2)
    assert "elsewhere.weight" in ran.err


def test_a_pickle_that_is_no_state_dict_is_not_opened(convert: Callable, tmp_path: Path) -> None:
    import pickle

    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return (os.mkdir, (str(tmp_path / "trapped"),))

    (tmp_path / "trap.pth").write_bytes(pickle.dumps(Trap()))
    convert(*INT8, "--weights", tmp_path / "trap.pth", without=("--weights",), code=2)
    assert not (tmp_path / "trapped").exists()


def test_an_unknown_target_lists_the_installed(convert: Callable) -> None:
    ran = convert("--precision", "fp32", "--target", "abacus", code=2)
    assert "abacus" in ran.err
    assert "openvino-cpu" in ran.err


def test_a_precision_the_target_does_not_run(convert: Callable) -> None:
    ran = convert("--precision", "fp16", "--target", "onnxruntime-cpu", code=6, fresh=True)
    assert "onnxruntime-cpu" in ran.err
    assert "fp32, int8" in ran.err


def test_int8_without_calibration(convert: Callable) -> None:
    assert "--calibration" in convert(*INT8, without=("--calibration",), code=2).err


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((20, 1, 8, 8), np.float32), "everywhere"),
        (np.full((20, 1, 8, 8), np.nan, np.float32), "NaN"),
        (np.random.default_rng(0).random((20, 1, 8, 7), np.float32), "expected (N, 1, 8, 8)"),
        (np.random.default_rng(0).random((20, 64), np.float32), "expected (N, 1, 8, 8)"),
        (np.random.default_rng(0).random((20, 1, 8, 8)), "float64, expected float32"),
        (np.zeros((0, 1, 8, 8), np.float32), "no samples"),
    ],
    ids=["zeros", "NaN", "shape", "rank", "dtype", "empty"],
)
def test_calibration_that_cannot_set_ranges(convert: Callable, tmp_path: Path, image: np.ndarray, message: str) -> None:
    np.savez(tmp_path / "bad.npz", image=image)
    ran = convert(*INT8, "--calibration", tmp_path / "bad.npz", without=("--calibration",), code=2)
    assert message in ran.err


def test_calibration_outside_the_declared_range(convert: Callable) -> None:
    ran = convert(*INT8, "--input", "image:1x1x8x8:float32:0..0.5", without=("--input",), code=2)
    assert "declared is 0 to 0.5" in ran.err


def test_wrongly_named_arrays_list_the_names(convert: Callable, tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", picture=np.ones((20, 1, 8, 8), np.float32), other=np.ones(3))
    ran = convert(*INT8, "--calibration", tmp_path / "bad.npz", without=("--calibration",), code=2)
    assert "expected arrays named image; got other, picture" in ran.err


def test_inputs_that_were_not_described_show_the_form(convert: Callable) -> None:
    ran = convert(*INT8, without=("--input", "--preprocess", "--calibration"), source=None, code=2)
    assert "--input" in ran.err


@pytest.mark.parametrize("text", ["image", "image:1xax8", "image:1x8:floaty", "image:1x8:int64:5..2", ":1x8"])
def test_an_input_that_cannot_be_parsed(convert: Callable, text: str) -> None:
    assert "--input" in convert(*INT8, "--input", text, without=("--input",), code=2).err


def test_a_factory_that_raises_shows_the_users_traceback(convert: Callable, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "def build():\n    return helper()\n\ndef helper():\n    raise KeyError('my own bug')\n"
    )
    child = convert(*INT8, without=("--weights",), source=f"{tmp_path / 'broken.py'}:build", code=2, fresh=True)
    assert "my own bug" in child.err
    assert "in helper" in child.err


def _on_the_boundary(folder: Path, bundles: Path) -> None:
    """Write test data that lies on the source's decision boundary: int8 decides half of it differently."""
    import ipj_edge

    with np.load(folder / "test.npz") as file:
        images = file["image"]
    low, high = images[:200], images[1:201]
    with ipj_edge.load(bundles / "digits.onnxruntime-cpu.fp32.ipj") as model:
        first = model.run(low).outputs["logits"].argmax(1)
        for _ in range(20):
            middle = (low + high) / 2
            same = (model.run(middle).outputs["logits"].argmax(1) == first)[:, None, None, None]
            low, high = np.where(same, middle, low), np.where(same, high, middle)
        differ = model.run(high).outputs["logits"].argmax(1) != first
        kept = low[differ]
        np.savez(folder / "boundary.npz", image=kept, labels=model.run(kept).outputs["logits"].argmax(1))


def test_an_accuracy_gate_that_is_missed(convert: Callable, digits: Path, bundles: Path) -> None:
    _on_the_boundary(digits, bundles)
    gate = ("--data", digits / "boundary.npz", "--max-accuracy-drop", "1pp")
    ran = convert(*INT8, *gate, code=5, fresh=True)
    assert "accuracy gate missed" in ran.err
    assert "nothing was published" in ran.err


def test_a_gate_on_a_model_without_scores_of_classes(convert: Callable, digits: Path) -> None:
    gate = ("--data", digits / "test.npz", "--max-accuracy-drop", "1pp", "--output", "logits:other")
    ran = convert(*INT8, *gate, without=("--output",), code=2)
    assert "needs an output that holds logits" in ran.err


@pytest.mark.parametrize("drop", ["1", "1%", "-1pp", "onepp"])
def test_a_drop_without_its_unit(convert: Callable, drop: str) -> None:
    assert "1pp" in convert(*INT8, "--max-accuracy-drop", drop, code=2).err


def test_a_gate_without_labelled_data(convert: Callable) -> None:
    assert "--data with labels" in convert(*INT8, "--max-accuracy-drop", "1pp", code=2).err


def test_a_taken_destination_is_kept(convert: Callable, tmp_path: Path) -> None:
    taken = tmp_path / "dist" / "digits.onnxruntime-cpu.int8.ipj"
    taken.mkdir(parents=True)
    (taken / "mine").write_text("precious")
    assert "--force" in convert(*INT8, code=2, keeps=1).err
    assert (taken / "mine").read_text() == "precious"


def test_what_a_plugin_converts_wrongly_is_not_published(
    convert: Callable, install_plugin: Callable[[str, str, str], None]
) -> None:
    install_plugin(
        "ipj_edge.converters",
        "a-broken-one = broken_converter:Broken",
        """
        from ipj_edge_converters.onnx.convert import ToOnnx

        class Broken(ToOnnx):
            name = "a-broken-one"

            def convert(self, task):
                files = super().convert(task)
                import onnx
                from onnx import numpy_helper
                path = task.into / files.file
                model = onnx.load(path)
                for tensor in model.graph.initializer:
                    values = numpy_helper.to_array(tensor)
                    if values.shape == (10, 512):
                        tensor.CopyFrom(numpy_helper.from_array(values[::-1].copy(), tensor.name))
                onnx.save(model, path)
                return files
        """,
    )
    ran = convert("--precision", "fp32", "--target", "onnxruntime-cpu", code=4)
    assert "answers differently from its source" in ran.err


def test_a_converter_that_raises_is_named(convert: Callable, install_plugin: Callable[[str, str, str], None]) -> None:
    install_plugin(
        "ipj_edge.converters",
        "a-raising-one = raising_converter:Raising",
        """
        class Raising:
            name, form, targets, precisions = "a-raising-one", "onnx", ("onnxruntime-cpu",), ("fp32",)

            def convert(self, task):
                raise RuntimeError("the library below me failed")
        """,
    )
    ran = convert("--precision", "fp32", "--target", "onnxruntime-cpu", code=3)
    assert "'a-raising-one' cannot convert this model: RuntimeError: the library below me failed" in ran.err


CRASHING = """
    import os
    from ipj_edge_targets.onnxruntime_cpu import OnnxruntimeCpu

    class Crashing(OnnxruntimeCpu):
        name = "crashing-cpu"

        def open(self, bundle, settings):
            os.kill(os.getpid(), 11)

    class Crasher:
        name, form, targets, precisions = "to-crashing", "onnx", ("crashing-cpu",), ("fp32", "int8")

        def convert(self, task):
            from ipj_edge_converters.onnx.convert import ToOnnx
            return ToOnnx().convert(task)
"""


def test_an_engine_crash_on_load_leaves_us_alive(
    convert: Callable, install_plugin: Callable[[str, str, str], None]
) -> None:
    install_plugin("ipj_edge.targets", "crashing-cpu = crashing_target:Crashing", CRASHING)
    install_plugin("ipj_edge.converters", "to-crashing = crashing_converter:Crasher", CRASHING)
    ran = convert("--precision", "fp32", "--target", "crashing-cpu", code=4, fresh=True)
    assert "died on this model (signal 11)" in ran.err


def test_one_target_failing_among_three_leaves_two(
    convert: Callable, install_plugin: Callable[[str, str, str], None], tmp_path: Path
) -> None:
    install_plugin("ipj_edge.targets", "crashing-cpu = crashing_target:Crashing", CRASHING)
    install_plugin("ipj_edge.converters", "to-crashing = crashing_converter:Crasher", CRASHING)
    three = ("--target", "onnxruntime-cpu", "--target", "crashing-cpu", "--target", "openvino-cpu")
    ran = convert("--precision", "fp32", *three, code=4, keeps=2)
    assert "crashing-cpu fp32" in ran.err
    names = sorted(path.name for path in (tmp_path / "dist").iterdir())
    assert names == ["digits.onnxruntime-cpu.fp32.ipj", "digits.openvino-cpu.fp32.ipj"]


def test_a_package_that_an_outsiders_target_lacks_is_named(
    convert: Callable, install_plugin: Callable[[str, str, str], None]
) -> None:
    install_plugin("ipj_edge.targets", "fpga = fpga_target:Fpga", "import a_package_nobody_has\n\nclass Fpga: ...\n")
    ran = convert("--precision", "fp32", "--target", "fpga", code=6)
    assert "'fpga' needs 'a_package_nobody_has': install the package that has it, as fpga_target 1.0" in ran.err


def test_an_operator_the_target_lacks_is_named(ipj_edge_here: Callable, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
        "        return torch.linalg.svdvals(x)\n\ndef build():\n    return Net()\n"
    )
    ran = ipj_edge_here(
        "convert",
        f"{tmp_path / 'net.py'}:build",
        "--input",
        "x:1x6x5",
        "--target",
        "tflite-cpu",
        "-o",
        tmp_path / "dist",
    )
    assert ran.code == 3, ran
    assert "svd" in ran.err
    assert list((tmp_path / "dist").glob("*")) == []


@pytest.fixture
def slow_converter(install_plugin: Callable[[str, str, str], None]) -> None:
    """A converter that, its file written, says so and stays, unless there is a file ``go`` beside the bundles."""
    install_plugin(
        "ipj_edge.converters",
        "a-slow-one = slow_converter:Slow",
        """
        import time
        from ipj_edge_converters.onnx.convert import ToOnnx

        class Slow(ToOnnx):
            name = "a-slow-one"

            def convert(self, task):
                files = super().convert(task)
                if not (task.into.parent.parent / "go").exists():
                    print("the file is written", flush=True)
                    time.sleep(600)
                return files
        """,
    )


@pytest.fixture
def start_and_wait(start_ipj_edge: Callable, slow_converter: None) -> Callable[..., subprocess.Popen[str]]:
    """Start a conversion and return when it has written its file."""

    def start(*command: object, **environment: str) -> subprocess.Popen[str]:
        child = start_ipj_edge("convert", *command, env=environment, stdout=subprocess.PIPE)
        lines_until(child, child.stdout, "the file is written")
        return child

    return start


def test_kill_9_midway_leaves_no_bundle_and_the_next_run_cleans_up(
    start_and_wait: Callable, digits_arguments: list[str], ipj_edge_cli: Callable, tmp_path: Path
) -> None:
    dist = tmp_path / "dist"
    command = [*digits_arguments, "--precision", "fp32", "--target", "onnxruntime-cpu", "-o", str(dist)]
    child = start_and_wait(*command)
    child.send_signal(signal.SIGKILL)
    ended(child)
    assert not (dist / "digits.onnxruntime-cpu.fp32.ipj").exists()
    assert list(dist.glob(".digits.*"))
    (dist / "go").touch()
    ran = ipj_edge_cli("convert", *command)
    assert ran.code == 0, ran
    assert sorted(path.name for path in dist.iterdir()) == ["digits.onnxruntime-cpu.fp32.ipj", "go"]


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_leaves_nothing_behind(
    start_and_wait: Callable, digits_arguments: list[str], tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    dist, scratch = tmp_path / "dist", tmp_path / "scratch"
    scratch.mkdir()
    command = [*digits_arguments, "--precision", "fp32", "--target", "onnxruntime-cpu", "-o", str(dist)]
    child = start_and_wait(*command, TMPDIR=str(scratch))
    child.send_signal(sent)
    ended(child)
    assert child.returncode == code
    assert list(dist.iterdir()) == []
    assert [path for path in scratch.iterdir() if path.name.startswith("ipj-edge")] == []


@pytest.fixture
def tiny_disk(tmp_path: Path):  # type: ignore[no-untyped-def]
    """A file system of 64 kB."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a tiny file system here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("target", ["openvino-cpu", "onnxruntime-cpu", "tflite-cpu"])
def test_a_full_disk_publishes_nothing(
    tiny_disk: Path, target: str, digits_arguments: list[str], ipj_edge_cli: Callable
) -> None:
    ran = ipj_edge_cli(
        "convert", *digits_arguments, "--precision", "fp32", "--target", target, "-o", tiny_disk / "dist"
    )
    assert ran.code == 2, ran
    assert "the disk is full" in ran.err
    assert list((tiny_disk / "dist").iterdir()) == []


def test_a_users_own_files_are_not_taken_for_packages(
    ipj_edge_cli: Callable, digits_arguments: list[str], tmp_path: Path
) -> None:
    """The children that prove a bundle start in the user's folder, which may hold an onnx.py."""
    here = tmp_path / "here"
    here.mkdir()
    for name in ("onnxruntime", "msgspec", "json"):
        (here / f"{name}.py").write_text("raise SystemExit('the user's own script ran')\n")
    installed = Path(sys.executable).parent / "ipj-edge"
    ran = subprocess.run(
        [installed, "convert", *digits_arguments, "--target", "onnxruntime-cpu", "-o", tmp_path / "dist"],
        capture_output=True, text=True, cwd=here, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
