"""The target: settings read back, sessions, and files that are broken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from ipj_edge import host
from ipj_edge.bundles.manifest import OperatorCount, Requirements
from ipj_edge.errors import BundleError, ConfigError, InputError, TargetError, TargetUnavailableError
from ipj_edge.plugins import TARGETS, load_target, names
from ipj_edge.values import Settings
from ipj_edge_targets.openvino_cpu import OpenvinoCpu


@pytest.fixture
def bundle(conv_source, convert, tmp_path):
    return convert(conv_source, tmp_path / "bundle")


def open_one(bundle, **settings):
    (session,) = OpenvinoCpu().open(bundle, Settings(**settings))
    return session


def test_the_target_is_found_by_its_entry_point():
    assert "openvino-cpu" in names(TARGETS)
    assert isinstance(load_target("openvino-cpu"), OpenvinoCpu)


def test_availability_says_the_engines_version():
    found = OpenvinoCpu().availability()
    assert found.available
    assert found.version.startswith("20")


def test_threads_and_precision_are_read_back(bundle):
    effective = open_one(bundle, threads=1).effective
    assert (effective.threads, effective.execution_precision) == (1, "f32")
    assert effective.providers == ("CPU",)
    assert set(effective.read_back) == {"threads", "execution_precision", "providers"}
    assert effective.affinity == host.affinity()


def test_threads_default_to_what_this_process_may_use(bundle):
    assert open_one(bundle).effective.threads == host.default_threads()


def test_more_threads_than_there_are_is_refused_unless_allowed(bundle):
    too_many = host.affinity() + 6
    with pytest.raises(TargetUnavailableError, match=f"threads: {too_many} was asked for"):
        open_one(bundle, threads=too_many)
    assert open_one(bundle, threads=too_many, allow_fallback=True).effective.threads < too_many


def test_no_threads_is_a_wrong_setting(bundle):
    with pytest.raises(ConfigError, match="whole number from 1"):
        open_one(bundle, threads=0)


def test_int8_is_confirmed_by_the_kernels_the_engine_chose(conv_source, convert, tmp_path):
    int8 = convert(conv_source, tmp_path / "int8", "int8", conv_source.calibration())
    effective = open_one(int8).effective
    assert effective.execution_precision == "int8"
    assert "execution_precision" in effective.read_back


def said_to_be(bundle, precision, **claims):
    """Return a bundle whose manifest claims another precision, for itself and for every stage."""
    stages = tuple(msgspec.structs.replace(stage, precision=precision, **claims) for stage in bundle.manifest.stages)
    manifest = msgspec.structs.replace(bundle.manifest, precision=precision, stages=stages)
    return msgspec.structs.replace(bundle, manifest=manifest)


def test_a_float_file_that_calls_itself_int8_is_refused(bundle):
    lying = said_to_be(bundle, "int8", operators=OperatorCount(total=1))
    with pytest.raises(TargetUnavailableError, match="execution precision: int8 was asked for, the engine gives f32"):
        open_one(lying)


def test_a_bf16_bundle_computes_in_bf16_or_says_why_not(bundle):
    bf16 = said_to_be(bundle, "bf16")
    try:
        session = open_one(bf16)
    except TargetUnavailableError:  # engines of some versions compute bf16 on CPUs without it too
        assert not {"avx512_bf16", "amx_bf16"} & host.cpu_flags()
    else:
        assert session.effective.execution_precision == "bf16"


def test_an_int8_file_that_lists_all_its_operators_as_float_runs_in_float32_and_says_so(bundle):
    listed = said_to_be(bundle, "int8", operators=OperatorCount(total=1, float_operators=("Convolution conv",)))
    assert open_one(listed).effective.execution_precision == "f32"


def test_another_precision_is_refused(bundle):
    fp16 = msgspec.structs.replace(bundle, manifest=msgspec.structs.replace(bundle.manifest, precision="fp16"))
    with pytest.raises(TargetUnavailableError, match="not fp16"):
        open_one(fp16)


def test_a_vnni_bundle_is_refused_where_the_cpu_has_none(bundle, monkeypatch):
    requires = Requirements(engine="openvino", engine_version="1", isa="vnni")
    assuming = msgspec.structs.replace(bundle, manifest=msgspec.structs.replace(bundle.manifest, requires=requires))
    monkeypatch.setattr(host, "has_vnni", lambda: False)
    with pytest.raises(TargetUnavailableError, match="--isa avx2"):
        open_one(assuming)
    open_one(assuming, allow_fallback=True).close()


def test_batch_sizes_may_alternate(conv_source, bundle):
    session = open_one(bundle, threads=1)
    sizes = [1, 2, 1, 32, 3, 1, 2]
    for index, size in enumerate(sizes):
        feeds = conv_source.feeds(size, seed=index)
        wanted = conv_source.run(feeds)["logits"]
        np.testing.assert_allclose(session.run(feeds)["logits"], wanted, rtol=1e-3, atol=1e-5)


def test_many_batch_sizes_do_not_pile_up_tensors(conv_source, bundle):
    session = open_one(bundle, threads=1)
    for size in range(1, 41):
        session.run(conv_source.feeds(size))
    assert len(session._lanes) <= 16
    feeds = conv_source.feeds(1)
    np.testing.assert_allclose(session.run(feeds)["logits"], conv_source.run(feeds)["logits"], rtol=1e-3, atol=1e-5)


def test_inputs_that_are_not_contiguous_are_taken_as_they_are(conv_source, bundle):
    session = open_one(bundle, threads=1)
    feeds = conv_source.feeds(2)
    strided = {"image": np.ascontiguousarray(feeds["image"].transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)}
    assert not strided["image"].flags.c_contiguous
    wanted = session.run(feeds)["logits"].copy()
    np.testing.assert_array_equal(session.run(strided)["logits"], wanted)


def test_a_clone_answers_alike_and_outlives_its_original(conv_source, bundle):
    session = open_one(bundle, threads=1)
    clone = session.clone()
    one, other = conv_source.feeds(1, seed=1), conv_source.feeds(1, seed=2)
    first = session.run(one)["logits"]
    second = clone.run(other)["logits"]
    np.testing.assert_allclose(first, conv_source.run(one)["logits"], rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(second, conv_source.run(other)["logits"], rtol=1e-3, atol=1e-5)
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
        ({"image": np.zeros((3, 10, 12), np.float32)}, r"shape \(3, 10, 12\): expected \(batch, 3, 10, 12\)"),
        ({"image": np.zeros((1, 3, 10, 12), np.float64)}, r"dtype float64: expected float32"),
        ({"image": np.zeros((0, 3, 10, 12), np.float32)}, r"shape \(0, 3, 10, 12\)"),
        ({"image": [[1.0]]}, r"is a list: expected a numpy array"),
    ],
)
def test_wrong_feeds_are_refused_with_expected_and_got(bundle, conv_source, wrong, says):
    session = open_one(bundle)
    for _ in range(2):  # before and after the lane for this shape exists
        with pytest.raises(InputError, match=says):
            session.run(wrong)
        session.run(conv_source.feeds(1))


def test_inputs_of_unequal_batch_are_refused(nets, convert, tmp_path):
    source = nets["two"](tmp_path)
    session = open_one(convert(source, tmp_path / "out"))
    feeds = {"left": source.feeds(2)["left"], "right": source.feeds(3)["right"]}
    with pytest.raises(InputError, match=r"input 'right' has shape \(3, 16\): expected \(2, 16\)"):
        session.run(feeds)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**40])
def test_whole_numbers_that_the_engine_would_wrap_are_refused(graph, tensor_spec, convert, tmp_path, value):
    g = graph()
    g.node("Add", ["x", "x"], "y")
    ports = (tensor_spec("x", ("batch", 3), "int64"), tensor_spec("y", ("batch", 3), "int64"))
    session = open_one(convert(g.save(tmp_path / "whole.onnx", ports[:1], ports[1:]), tmp_path / "out"))
    assert session.run({"x": np.array([[-5, 2**30 - 1, 3]])})["y"].tolist() == [[-10, 2**31 - 2, 6]]
    with pytest.raises(InputError, match=f"'x' holds {value}.*32 bits"):
        session.run({"x": np.array([[1, value, 3]])})


def test_an_answer_as_long_as_its_values_say_is_read_anew_every_time(graph, tensor_spec, convert, tmp_path):
    g = graph()
    g.node("Relu", ["x"], "y")
    g.node("NonZero", ["y"], "found")
    outputs = (tensor_spec("y", ("batch", 4)), tensor_spec("found", (2, "found_dim1"), "int64", batch_axis=None))
    source = g.save(tmp_path / "found.onnx", (tensor_spec("x", ("batch", 4)),), outputs)
    session = open_one(convert(source, tmp_path / "out"))
    for seed in range(4):
        feeds = source.feeds(1, seed)
        np.testing.assert_array_equal(session.run(feeds)["found"], source.run(feeds)["found"])


def test_scalars_and_booleans_come_out_as_they_are(graph, tensor_spec, convert, tmp_path):
    g = graph()
    g.node("ReduceMean", ["x"], "mean", keepdims=0)
    g.node("Greater", ["x", g.constant("zero", np.float32(0))], "positive")
    g.node("Cast", ["x"], "whole", to=7)
    outputs = (
        tensor_spec("mean", (), batch_axis=None),
        tensor_spec("positive", ("batch", 4), "bool"),
        tensor_spec("whole", ("batch", 4), "int64"),
    )
    source = g.save(tmp_path / "odd.onnx", (tensor_spec("x", ("batch", 4)),), outputs)
    session = open_one(convert(source, tmp_path / "out"))
    feeds = {"x": 3 * source.feeds(5)["x"]}
    got, wanted = session.run(feeds), source.run(feeds)
    for name, value in wanted.items():
        assert (got[name].shape, got[name].dtype) == (value.shape, value.dtype)
        np.testing.assert_allclose(got[name], value, rtol=1e-5)


OPEN_IN_A_CHILD = """
import sys
import msgspec
from pathlib import Path
from ipj_edge.bundles.bundle import record_files
from ipj_edge.bundles.manifest import Bundle, Manifest
from ipj_edge.errors import BundleError
from ipj_edge.values import Settings
from ipj_edge_targets.openvino_cpu import OpenvinoCpu
folder = Path(sys.argv[1])
manifest = msgspec.json.decode((folder / "manifest.json").read_bytes(), type=Manifest)
manifest = msgspec.structs.replace(manifest, files=record_files(folder))
try:
    OpenvinoCpu().open(Bundle(path=folder, manifest=manifest), Settings())
except BundleError as error:
    print(error)
"""


def cut_in_half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("name", "harm"),
    [
        ("model.xml", cut_in_half),
        ("model.xml", lambda path: path.write_bytes(b"")),
        ("model.xml", lambda path: path.write_text("<net name='x'><layers/><edges/></net>")),
        ("model.xml", lambda path: path.unlink()),
        ("model.bin", cut_in_half),
        ("model.bin", lambda path: path.write_bytes(b"")),
        ("model.bin", lambda path: path.unlink()),
    ],
    ids=["half xml", "empty xml", "no layers", "no xml", "half bin", "empty bin", "no bin"],
)
def test_a_broken_file_is_one_clear_line(bundle, name, harm):
    (bundle.path / "manifest.json").write_bytes(msgspec.json.encode(bundle.manifest))
    harm(bundle.path / name)
    child = subprocess.run(
        [sys.executable, "-c", OPEN_IN_A_CHILD, str(bundle.path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    (line,) = child.stdout.splitlines()
    assert "model.xml" in line
    assert "Exception from" not in line


RUN_IN_A_CHILD = """
import sys
import msgspec
import numpy as np
from pathlib import Path
from ipj_edge.bundles.bundle import record_files
from ipj_edge.bundles.manifest import Bundle, Manifest
from ipj_edge.values import Settings
from ipj_edge_targets.openvino_cpu import OpenvinoCpu
folder = Path(sys.argv[1])
manifest = msgspec.json.decode((folder / "manifest.json").read_bytes(), type=Manifest)
manifest = msgspec.structs.replace(manifest, files=record_files(folder))
(session,) = OpenvinoCpu().open(Bundle(path=folder, manifest=manifest), Settings())
session.run({"image": np.zeros((2, 3, 10, 12), np.float32)})
print([name for name in sys.modules if name.split(".")[0] in ("openvino_telemetry", "torch", "nncf", "onnx")])
"""


def test_running_writes_no_file_and_loads_no_telemetry(bundle, tmp_path):
    (bundle.path / "manifest.json").write_bytes(msgspec.json.encode(bundle.manifest))
    before = sorted(path.name for path in bundle.path.iterdir())
    home = tmp_path / "home"
    home.mkdir()
    child = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN_IN_A_CHILD, str(bundle.path)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=home,
        env={"HOME": str(home), "PATH": str(Path(sys.executable).parent)},
        check=False,
    )
    assert child.returncode == 0, child.stderr
    assert child.stdout.strip() == "[]"
    assert child.stderr == ""
    assert list(home.iterdir()) == []
    assert sorted(path.name for path in bundle.path.iterdir()) == before


def test_a_stage_file_that_is_missing_is_named(bundle):
    (bundle.path / "model.xml").unlink()
    with pytest.raises(BundleError, match=r"model\.xml"):
        open_one(bundle)
