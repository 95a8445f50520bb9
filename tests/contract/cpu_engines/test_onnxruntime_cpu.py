"""The target onnxruntime-cpu: answers, settings read back, sessions, and files that are broken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from ipj_edge import host
from ipj_edge.errors import ConfigError, InputError, TargetError, TargetUnavailableError
from ipj_edge.plugins import load_target
from ipj_edge.values import Settings
from ipj_edge_targets.onnxruntime_cpu import OnnxruntimeCpu


@pytest.fixture
def bundle(conv_source, onnx_bundle, tmp_path):
    return onnx_bundle(conv_source, tmp_path / "bundle")


def open_one(bundle, **settings):
    (session,) = OnnxruntimeCpu().open(bundle, Settings(**settings))
    return session


def test_the_target_is_found_by_its_entry_point():
    assert isinstance(load_target("onnxruntime-cpu"), OnnxruntimeCpu)


@pytest.mark.parametrize("batch", [1, 2, 32])
def test_answers_equal_a_plain_run(any_source, onnx_bundle, tmp_path, batch):
    session = open_one(onnx_bundle(any_source, tmp_path / "out"), threads=1)
    for seed in range(3):  # the first inference, the first bound one, and one more
        feeds = any_source.feeds(batch, seed=seed)
        wanted = any_source.run(feeds)
        got = session.run(feeds)
        assert list(got) == [spec.name for spec in any_source.outputs]
        for name, value in wanted.items():
            assert (got[name].shape, got[name].dtype) == (value.shape, value.dtype)
            np.testing.assert_allclose(got[name], value, rtol=1e-5, atol=1e-6)
    session.close()


def test_int8_answers_equal_a_plain_run(conv_source, quantized, onnx_bundle, tmp_path):
    source = quantized(conv_source)
    session = open_one(onnx_bundle(source, tmp_path / "out"))
    feeds = source.feeds(4)
    np.testing.assert_allclose(session.run(feeds)["logits"], source.run(feeds)["logits"], atol=1e-6)
    assert session.effective.execution_precision == "int8"


def test_settings_are_reported(bundle):
    effective = open_one(bundle, threads=1).effective
    assert effective.engine == "onnxruntime"
    assert effective.threads == 1
    assert effective.providers == ("CPUExecutionProvider",)
    assert effective.spinning is False
    assert effective.read_back == ("providers",)
    assert open_one(bundle, spinning=True).effective.spinning is True
    assert open_one(bundle).effective.threads == host.default_threads()


def test_the_engine_gets_the_threads_and_does_not_spin(bundle):
    options = open_one(bundle, threads=2)._loaded.get_session_options()
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (2, 1)
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_no_threads_is_a_wrong_setting(bundle):
    with pytest.raises(ConfigError, match="whole number from 1"):
        open_one(bundle, threads=0)


def test_another_precision_is_refused(bundle):
    bf16 = msgspec.structs.replace(bundle, manifest=msgspec.structs.replace(bundle.manifest, precision="bf16"))
    with pytest.raises(TargetUnavailableError, match="not bf16"):
        open_one(bf16)


def test_a_vnni_bundle_is_refused_where_the_cpu_has_none(conv_source, quantized, onnx_bundle, tmp_path, monkeypatch):
    assuming = onnx_bundle(quantized(conv_source), tmp_path / "out", isa="vnni")
    monkeypatch.setattr(host, "has_vnni", lambda: False)
    with pytest.raises(TargetUnavailableError, match="--isa avx2") as caught:
        open_one(assuming)
    assert caught.value.exit_code == 6
    open_one(assuming, allow_fallback=True).close()


def test_batch_sizes_may_alternate_and_do_not_pile_up(conv_source, bundle):
    session = open_one(bundle, threads=1)
    for index, size in enumerate([1, 2, 1, 32, *range(1, 30), 1, 2]):
        feeds = conv_source.feeds(size, seed=index)
        wanted = conv_source.run(feeds)["logits"]
        np.testing.assert_allclose(session.run(feeds)["logits"], wanted, rtol=1e-5, atol=1e-6)
    assert len(session._lanes) <= 16


def test_inputs_that_are_not_contiguous_are_taken_as_they_are(conv_source, bundle):
    session = open_one(bundle, threads=1)
    feeds = conv_source.feeds(2)
    strided = {"image": np.ascontiguousarray(feeds["image"].transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)}
    assert not strided["image"].flags.c_contiguous
    wanted = conv_source.run(feeds)["logits"]
    for _ in range(2):
        np.testing.assert_allclose(session.run(strided)["logits"], wanted, rtol=1e-5, atol=1e-6)


def test_scalars_and_other_dtypes_come_out_as_they_are(graph, tensor_spec, onnx_bundle, tmp_path):
    g = graph()
    g.node("ReduceMean", ["x"], "mean", keepdims=0)
    g.node("Greater", ["x", g.constant("zero", np.float32(0))], "positive")
    g.node("Cast", ["x"], "whole", to=7)
    g.node("Cast", ["x"], "double", to=11)
    outputs = (
        tensor_spec("mean", (), batch_axis=None),
        tensor_spec("positive", ("batch", 4), "bool"),
        tensor_spec("whole", ("batch", 4), "int64"),
        tensor_spec("double", ("batch", 4), "float64"),
    )
    source = g.save(tmp_path / "odd.onnx", (tensor_spec("x", ("batch", 4)),), outputs)
    session = open_one(onnx_bundle(source, tmp_path / "out"))
    for seed in range(3):
        feeds = {"x": 3 * source.feeds(5, seed=seed)["x"]}
        got = session.run(feeds)
        for name, value in source.run(feeds).items():
            assert isinstance(got[name], np.ndarray)
            assert (got[name].shape, got[name].dtype) == (np.shape(value), np.asarray(value).dtype)
            np.testing.assert_allclose(got[name], value, rtol=1e-6)


def test_an_output_whose_size_depends_on_the_data_works_every_time(graph, tensor_spec, onnx_bundle, tmp_path):
    g = graph()
    g.node("NonZero", ["x"], "where")
    outputs = (tensor_spec("where", (1, "found"), "int64", batch_axis=None),)
    source = g.save(tmp_path / "nz.onnx", (tensor_spec("x", ("batch",)),), outputs)
    session = open_one(onnx_bundle(source, tmp_path / "out"))
    for values in ([0, 1, 0], [1, 1, 1], [0, 0, 0]):
        got = session.run({"x": np.array(values, np.float32)})["where"]
        np.testing.assert_array_equal(got, [np.flatnonzero(values)])


def test_a_clone_answers_alike_and_outlives_its_original(conv_source, bundle):
    session = open_one(bundle, threads=1)
    clone = session.clone()
    one, other = conv_source.feeds(1, seed=1), conv_source.feeds(1, seed=2)
    for _ in range(2):
        first = session.run(one)["logits"]
        second = clone.run(other)["logits"]
        np.testing.assert_allclose(first, conv_source.run(one)["logits"], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(second, conv_source.run(other)["logits"], rtol=1e-5, atol=1e-6)
    session.close()
    np.testing.assert_array_equal(clone.run(other)["logits"], second)


def test_closing_twice_is_fine_and_using_after_is_not(conv_source, bundle):
    session = open_one(bundle)
    session.run(conv_source.feeds(1))
    session.close()
    session.close()
    with pytest.raises(TargetError, match="closed"):
        session.run(conv_source.feeds(1))
    with pytest.raises(TargetError, match="closed"):
        session.clone()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"picture": np.zeros((1, 3, 10, 12), np.float32)}, r"input 'image' is missing: expected 'image'"),
        ({"image": np.zeros((1, 3, 12, 10), np.float32)}, r"shape \(1, 3, 12, 10\): expected \(1, 3, 10, 12\)"),
        ({"image": np.zeros((1, 3, 10, 12), np.float64)}, r"dtype float64: expected float32"),
        ({"image": [[1.0]]}, r"is a list: expected a numpy array"),
    ],
)
def test_wrong_feeds_are_refused_with_expected_and_got(bundle, conv_source, wrong, says):
    session = open_one(bundle)
    for _ in range(3):  # before and after the memory for this shape is bound
        with pytest.raises(InputError, match=says):
            session.run(wrong)
        session.run(conv_source.feeds(1))


def test_a_failure_inside_the_engine_is_one_line(graph, tensor_spec, onnx_bundle, tmp_path):
    g = graph()
    g.node("Gather", [g.weight("table", (5, 2)), "ids"], "y")
    source = g.save(
        tmp_path / "gather.onnx",
        (tensor_spec("ids", ("batch",), "int64"),),
        (tensor_spec("y", ("batch", 2)),),
    )
    session = open_one(onnx_bundle(source, tmp_path / "out"))
    session.run({"ids": np.array([1, 2])})
    with pytest.raises(TargetError, match="onnxruntime failed on 'all'") as caught:
        session.run({"ids": np.array([1, 77])})
    assert "\n" not in str(caught.value)


def test_two_packages_of_the_engine_are_noticed(tmp_path, monkeypatch):
    folder = tmp_path / "onnxruntime_gpu-1.31.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: onnxruntime-gpu\nVersion: 1.31.1\n")
    assert OnnxruntimeCpu().availability().reason == ""
    monkeypatch.syspath_prepend(tmp_path)
    found = OnnxruntimeCpu().availability()
    assert "overwrite each other" in found.reason
    assert "pip uninstall" in found.fix


CHILD = """
import sys
import msgspec
import numpy as np
from pathlib import Path
from ipj_edge.bundles.bundle import record_files
from ipj_edge.bundles.manifest import Bundle, Manifest
from ipj_edge.errors import BundleError
from ipj_edge.values import Settings
from ipj_edge_targets.onnxruntime_cpu import OnnxruntimeCpu
folder = Path(sys.argv[1])
manifest = msgspec.json.decode((folder / "manifest.json").read_bytes(), type=Manifest)
manifest = msgspec.structs.replace(manifest, files=record_files(folder))
try:
    (session,) = OnnxruntimeCpu().open(Bundle(path=folder, manifest=manifest), Settings())
    print(session.run({"image": np.zeros((2, 3, 10, 12), np.float32)})["logits"].shape)
    print([name for name in sys.modules if name.split(".")[0] in ("torch", "onnx", "openvino")])
except BundleError as error:
    print(error)
"""


def in_a_child(folder, **more):
    child = subprocess.run(
        [sys.executable, "-W", "error", "-c", CHILD, str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **more,
    )
    assert child.returncode == 0, child.stderr
    assert child.stderr == ""
    return child.stdout.splitlines()


def cut_in_half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    "harm",
    [cut_in_half, lambda path: path.write_bytes(b""), lambda path: path.write_text("no model"), Path.unlink],
    ids=["half", "empty", "text", "missing"],
)
def test_a_broken_file_is_one_clear_line(bundle, harm):
    (bundle.path / "manifest.json").write_bytes(msgspec.json.encode(bundle.manifest))
    harm(bundle.path / "model.onnx")
    (line,) = in_a_child(bundle.path)
    assert line.startswith(("onnxruntime cannot load 'model.onnx': ", "'model.onnx' is none"))
    assert str(bundle.path) not in line


def test_running_writes_no_file_and_reports_nothing(bundle, tmp_path):
    (bundle.path / "manifest.json").write_bytes(msgspec.json.encode(bundle.manifest))
    before = sorted(path.name for path in bundle.path.iterdir())
    home = tmp_path / "home"
    home.mkdir()
    environment = {"HOME": str(home), "PATH": str(Path(sys.executable).parent)}
    assert in_a_child(bundle.path, cwd=home, env=environment) == ["(2, 5)", "[]"]
    assert list(home.iterdir()) == []
    assert sorted(path.name for path in bundle.path.iterdir()) == before
