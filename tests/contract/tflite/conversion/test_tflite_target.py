from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from torch import nn

from ipj_edge import host
from ipj_edge.errors import BundleError, ConfigError, InputError, TargetError, TargetUnavailableError
from ipj_edge.plugins import load_target
from ipj_edge.values import Settings
from ipj_edge_targets.tflite_cpu import TfliteCpu
from ipj_edge_targets.tflite_engine import Engine, find_engine, numpy_conflict


@pytest.fixture
def net(net_source, spec):
    torch.manual_seed(0)
    return net_source(
        lambda conv, line, x, gain: (line(torch.relu(conv(x)).flatten(1)) * gain, x + 1),
        nn.Conv2d(3, 4, 3, padding=1),
        nn.Linear(4 * 5 * 7, 4),
        inputs=(spec("image", 3, 5, 7), spec("gain", 4)),
        outputs=("logits", "shifted"),
    )


@pytest.fixture
def opened(converted, net):
    return converted(net)


def feeds_of(samples, net, seed=5):
    return samples(net, 1, seed=seed)


def with_stage(bundle, **changes):
    stage = replace(bundle.manifest.stages[0], **changes)
    return replace(bundle, manifest=replace(bundle.manifest, stages=(stage,)))


def test_the_plugin_is_registered():
    target = load_target("tflite-cpu")
    assert (target.name, target.engine) == ("tflite-cpu", "ai-edge-litert")
    assert target.precisions == ("fp32", "fp16", "int8")


def test_importing_the_target_imports_no_engine():
    code = "import sys, ipj_edge_targets.tflite_cpu; print(sorted({'ai_edge_litert', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_engine_is_available_with_its_version():
    availability = TfliteCpu().availability()
    assert availability.available, availability.reason
    assert int(availability.version.split(".")[0]) >= 2


def test_effective_settings_are_what_the_engine_confirms(opened):
    effective = opened.session.effective
    assert (effective.engine, effective.threads, effective.execution_precision) == ("ai-edge-litert", 1, "f32")
    assert effective.providers == ("XNNPACK",)
    assert effective.spinning is None
    assert (effective.affinity, effective.cpu_quota) == (host.affinity(), host.cpu_quota())
    # The engine cannot be asked for its threads.
    assert effective.read_back == ("execution_precision", "providers")


def test_an_int8_stage_is_read_back_as_int8(converted, net, samples):
    assert converted(net, "int8", samples(net, 20)).session.effective.execution_precision == "int8"


def test_a_mixed_stage_is_read_back_as_a_mixture(converted, net_source, spec, samples):
    source = net_source(lambda line, x: (line(torch.sin(x)),), nn.Linear(8, 4), inputs=(spec("x", 8),))
    assert converted(source, "int8", samples(source, 20)).session.effective.execution_precision == "int8+f32"


def test_a_model_the_delegate_does_not_take_shows_no_provider(converted, net_source, spec):
    source = net_source(lambda x: (torch.argmax(x, -1),), inputs=(spec("x", 8),))
    assert converted(source).session.effective.providers == ()


def test_threads_default_to_what_this_process_may_use(opened):
    (session,) = TfliteCpu().open(opened.bundle, Settings())
    assert session.effective.threads == host.default_threads()


def test_less_than_one_thread_is_refused(opened):
    with pytest.raises(ConfigError, match="threads is 0"):
        TfliteCpu().open(opened.bundle, Settings(threads=0))


def test_results_outlive_the_next_call_and_the_session(opened, net, samples):
    first = opened.session.run(feeds_of(samples, net))
    kept = {name: array.copy() for name, array in first.items()}
    opened.session.run(feeds_of(samples, net, seed=6))
    opened.session.close()
    assert list(first) == ["logits", "shifted"]
    assert all(np.array_equal(first[name], kept[name]) for name in kept)


def test_arrays_in_any_memory_order_give_the_same_answer(opened, net, samples):
    feeds = feeds_of(samples, net)
    wide = np.repeat(feeds["image"], 2, axis=-1)[..., ::2]
    fortran = np.asfortranarray(feeds["image"])
    wanted = opened.session.run(feeds)["logits"]
    assert not wide.flags["C_CONTIGUOUS"]
    for image in (wide, fortran):
        assert np.array_equal(opened.session.run({**feeds, "image": image})["logits"], wanted)


def test_a_clone_answers_alike_and_lives_on_alone(opened, net, samples):
    feeds = feeds_of(samples, net)
    clone = opened.session.clone()
    wanted = opened.session.run(feeds)
    clone.run(feeds_of(samples, net, seed=9))
    assert np.array_equal(opened.session.run(feeds)["logits"], wanted["logits"])
    opened.session.close()
    assert np.array_equal(clone.run(feeds)["logits"], wanted["logits"])
    assert clone.effective == opened.session.effective


def test_a_clone_of_a_file_that_was_replaced_answers_as_the_one_that_was_checked(opened, net, samples):
    wanted = opened.session.run(feeds_of(samples, net))
    (opened.folder / opened.files.file).write_bytes(b"another file")
    assert np.array_equal(opened.session.clone().run(feeds_of(samples, net))["logits"], wanted["logits"])


def test_a_closed_session_says_so(opened, net, samples):
    opened.session.close()
    opened.session.close()
    with pytest.raises(TargetError, match="session is closed"):
        opened.session.run(feeds_of(samples, net))
    with pytest.raises(TargetError, match="session is closed"):
        opened.session.clone()


def test_a_missing_array_is_named(opened, net, samples):
    feeds = feeds_of(samples, net)
    del feeds["gain"]
    with pytest.raises(InputError, match=r"no array for 'gain'; this stage takes \['image', 'gain'\]"):
        opened.session.run(feeds)


@pytest.mark.parametrize("change", [lambda a: a.astype(np.float64), lambda a: a[..., :3], lambda a: a[0]])
def test_an_array_of_another_dtype_or_shape_is_refused(opened, net, samples, change):
    feeds = feeds_of(samples, net)
    with pytest.raises(InputError, match="the engine refuses an array"):
        opened.session.run({**feeds, "image": change(feeds["image"])})
    assert opened.session.run(feeds)["logits"].shape == (1, 4)


def test_a_file_that_is_not_what_the_manifest_says_is_refused(converted, net, samples):
    made = converted(net, "int8", samples(net, 20))
    image, gain = made.files.takes
    wrong_scale = replace(image, quantization=replace(image.quantization, scale=2 * image.quantization.scale))
    for wrong, words in (
        (wrong_scale, "the manifest says"),
        (replace(image, shape=(1, 5, 7, 3)), "the manifest says"),
        (replace(image, engine_name="elsewhere"), "has no tensor 'elsewhere'"),
    ):
        with pytest.raises(BundleError, match=words):
            TfliteCpu().open(with_stage(made.bundle, takes=(wrong, gain)), Settings(threads=1))


def test_a_float_file_sold_as_int8_needs_leave_to_fall_back(opened):
    bundle = with_stage(opened.bundle, precision="int8")
    with pytest.raises(TargetUnavailableError, match="is int8 in the manifest, but the engine computes in f32"):
        TfliteCpu().open(bundle, Settings(threads=1))
    (session,) = TfliteCpu().open(bundle, Settings(threads=1, allow_fallback=True))
    assert session.effective.execution_precision == "f32"


def test_a_missing_file_is_named(opened):
    (opened.folder / opened.files.file).unlink()
    with pytest.raises(BundleError, match=r"model\.tflite is missing"):
        TfliteCpu().open(opened.bundle, Settings(threads=1))


def test_the_newer_engine_wins():
    assert find_engine({"tflite-runtime": "2.14.0", "ai-edge-litert": "2.3.0"}) == Engine(
        distribution="ai-edge-litert", version="2.3.0", module="ai_edge_litert.interpreter"
    )
    assert find_engine({"tflite-runtime": "2.14.0"}).module == "tflite_runtime.interpreter"
    assert find_engine({}) is None


def test_the_old_engine_with_numpy_2_is_refused_with_the_way_out():
    old = Engine(distribution="tflite-runtime", version="2.14.0", module="tflite_runtime.interpreter")
    assert "needs numpy<2" in numpy_conflict(old, "2.4.6")
    assert "ai-edge-litert" in numpy_conflict(old, "2.4.6")
    assert numpy_conflict(old, "1.26.4") == ""
    new = Engine(distribution="ai-edge-litert", version="2.3.0", module="ai_edge_litert.interpreter")
    assert numpy_conflict(new, "2.4.6") == ""


# Files that an engine may die on are opened in a child process.
_OPEN = """
import sys
from pathlib import Path
from ipj_edge.errors import IpjEdgeError
from ipj_edge.bundles.bundle import record_files
from ipj_edge.bundles.manifest import *
from ipj_edge.values import Settings
from ipj_edge_targets.tflite_cpu import TfliteCpu
path = Path(sys.argv[1])
stage = StageSpec(name="whole", file=path.name, takes=(), adds=(), exit_output=None, precision="fp32", macs=None,
                  parameters=0, file_bytes=0, operators=OperatorCount(total=0))
manifest = Manifest(schema_version=1, digest="", name="n", target="tflite-cpu", precision="fp32", created_with={},
                    source=SourceRecord(file="f", kind="k", sha256=""), files=record_files(path.parent),
                    inputs=(), outputs=(),
                    stages=(stage,), batch=BatchSpec(static=1, probed=(1,), max=1),
                    parity=ParityRecord(verified_on="target", tolerance=1e-4, seed=0, outputs=()),
                    requires=Requirements(engine="ai-edge-litert", engine_version="2"), golden_samples=0)
try:
    TfliteCpu().open(Bundle(path=path.parent, manifest=manifest), Settings(threads=1))
except IpjEdgeError as error:
    print(type(error).__name__, error)
    sys.exit(error.exit_code)
"""


def open_in_a_child(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", _OPEN, str(path)], capture_output=True, text=True, check=False)


def test_a_truncated_file_is_a_damaged_bundle(opened):
    path = opened.folder / "model.tflite"
    path.write_bytes(path.read_bytes()[:200])
    child = open_in_a_child(path)
    assert child.returncode == 9, child.stdout + child.stderr
    assert child.stdout.startswith("BundleError ai-edge-litert refuses 'model.tflite'")
    assert child.stdout.count("\n") == 1


def test_a_file_of_noise_is_a_damaged_bundle(tmp_path):
    path = tmp_path / "model.tflite"
    path.write_bytes(bytes(range(256)) * 4)
    child = open_in_a_child(path)
    assert (child.returncode, child.stdout.count("\n")) == (9, 1)


@pytest.mark.data
@pytest.mark.parametrize(
    ("file", "operator"),
    [
        ("broken/model_invoking_error.tflite", "fake-op-double"),
        ("broken/person_detect_ethosu.tflite", "ethos-u"),
        ("coral/mobilenet_v1_0.25_128_quant_edgetpu.tflite", "edgetpu-custom-op"),
    ],
)
def test_a_custom_operator_is_named_in_one_line(data_folder, file, operator):
    child = open_in_a_child(data_folder / "models" / file)
    assert child.returncode == 9, child.stderr
    assert f"has no kernel for the operator '{operator}'" in child.stdout
    assert child.stdout.count("\n") == 1
