"""Odd but real models, converted, loaded and run on every target that runs them."""

from __future__ import annotations

import shutil
import wave

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ipj_edge
from ipj_edge.errors import ConfigError, UnsupportedError
from ipj_edge.values import TensorSpec

TARGETS = ("onnxruntime-cpu", "openvino-cpu", "tflite-cpu")
ONNX_TARGETS = (
    "onnxruntime-cpu",
    "openvino-cpu",
    pytest.param(
        "tflite-cpu",
        marks=pytest.mark.skipif(shutil.which("onnx2tf") is None, reason="onnx2tf is not on PATH"),
    ),
)

pytestmark = [
    pytest.mark.slow,
    # torch 2.13's export of recurrent layers speaks to their authors.
    pytest.mark.filterwarnings("ignore:The tensor attributes .*_flat_weights:UserWarning"),
]


def spec(name, shape, dtype="float32", values=None):
    return TensorSpec(name=name, shape=shape, dtype=dtype, batch_axis=0 if shape else None, value_range=values)


@pytest.mark.parametrize("target", TARGETS)
def test_two_inputs_a_scalar_and_an_integer_output(made, target):
    with ipj_edge.load(made("two", target).path) as model:
        left = np.arange(10, dtype=np.float32).reshape(2, 5)
        right = -(left[::-1] ** 2)
        result = model.run({"left": left, "right": right, "gain": np.float32(0.5)})
    both = left[:, :4] * 0.5 + right[:, 1:]
    values, best = result.outputs.values()
    np.testing.assert_allclose(values, both, rtol=1e-5)
    assert best.tolist() == both.argmax(1).tolist()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("network", ["lstm", "gru", "encoder"])
def test_sequences_and_attention_run_everywhere(made, network, target):
    conversion = made(network, target)
    assert max(each.relative_l2 for each in conversion.manifest.parity.outputs) < 1e-5
    with ipj_edge.load(conversion.path) as model:
        shape = tuple(size if isinstance(size, int) else 3 for size in model.manifest.inputs[0].shape)
        assert model.run(np.ones(shape, model.manifest.inputs[0].dtype)).outputs["output"].shape == (shape[0], 5)


@pytest.mark.parametrize("target", TARGETS)
def test_a_state_of_several_layers_is_carried_by_the_caller(made, target):
    conversion = made("streaming", target)
    assert conversion.manifest.batch.static == 1
    with ipj_edge.load(conversion.path) as model:
        x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(1, 4, 6)
        first = list(model.run({"x": x, "state": np.zeros((2, 1, 5), np.float32)}).outputs.values())
        second = list(model.run({"x": x, "state": first[1]}).outputs.values())
    np.testing.assert_allclose(first[0][:, -1], first[1][1], rtol=1e-5)
    assert np.abs(second[0] - first[0]).max() > 0.01


@pytest.mark.parametrize("target", ["onnxruntime-cpu", "openvino-cpu"])
def test_float64_outputs_stay_float64(made, tmp_path, target):
    weights = numpy_helper.from_array(np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Cast", ["m"], ["y"], to=TensorProto.DOUBLE)],
        "double",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, ["batch", 3])],
        [weights],
    )
    path = tmp_path / "double.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    with ipj_edge.load(made(path, target).path) as model:
        found = model.run(np.ones((2, 4), np.float32)).outputs["y"]
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, np.ones((2, 4)) @ np.linspace(-1, 1, 12).reshape(4, 3), atol=1e-6)


def sound(data_folder, name):
    with wave.open(str(data_folder / "kws" / "wav" / f"{name}_1000ms.wav")) as file:
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768


def speech(model, audio, **settings):
    """Return the largest probability of speech over a clip: frames of 512 samples with 64 before, state carried on."""
    state, before, best = np.zeros((2, 1, 128), np.float32), np.zeros(64, np.float32), 0.0
    for start in range(0, len(audio) - 511, 512):
        frame = audio[start : start + 512]
        answers = model.run({"input": np.concatenate([before, frame])[None], "state": state, **settings}).outputs
        state, before = answers["stateN"], frame[-64:]
        best = max(best, float(answers["output"].max()))
    return best


@pytest.mark.data
@pytest.mark.parametrize("target", ONNX_TARGETS)
def test_silero_vad_hears_speech_and_nothing_else(made, data_folder, target):
    path = made(data_folder / "models/onnx/silero_vad_openvino_16k.onnx", target).path
    with ipj_edge.load(path) as model:
        heard = {name: speech(model, sound(data_folder, name)) for name in ("yes", "no", "silence", "noise")}
    assert heard["yes"] == pytest.approx(1.000, abs=0.005)
    assert heard["no"] == pytest.approx(0.996, abs=0.005)
    assert heard["silence"] == pytest.approx(0.012, abs=0.005)
    assert heard["noise"] == pytest.approx(0.020, abs=0.005)


SILERO = (spec("sr", (), "int64", (16000, 16001)), spec("input", (1, 576)), spec("state", (2, 1, 128)))


@pytest.mark.data
@pytest.mark.parametrize("target", ["onnxruntime-cpu", "openvino-cpu"])
def test_a_model_with_if_and_a_scalar_runs_with_its_sizes_fixed(made, data_folder, target):
    conversion = made(data_folder / "models/onnx/silero_vad_16k_op15.onnx", target, inputs=SILERO)
    assert conversion.manifest.batch.static == 1
    assert any("'state' has its samples on axis 1" in note for note in conversion.manifest.notes)
    with ipj_edge.load(conversion.path) as model:
        heard = {name: speech(model, sound(data_folder, name), sr=np.int64(16000)) for name in ("yes", "silence")}
    assert heard["yes"] > 0.99
    assert heard["silence"] < 0.05


@pytest.mark.data
def test_open_sizes_inside_an_if_are_refused_by_openvino_with_the_operators_named(made, data_folder, tmp_path):
    rows = sound(data_folder, "yes")[: 512 * 16].reshape(16, 512)
    np.savez(tmp_path / "rows.npz", input=np.pad(rows, ((0, 0), (64, 0))), state=np.zeros((2, 1, 128), np.float32),
             sr=np.array(16000))  # fmt: skip
    conversion = made(
        data_folder / "models/onnx/silero_vad_16k_op15.onnx", "openvino-cpu", data=str(tmp_path / "rows.npz")
    )
    assert isinstance(conversion.error, UnsupportedError)
    assert "Conv" in str(conversion.error)


@pytest.mark.data
@pytest.mark.parametrize("target", ["onnxruntime-cpu", "openvino-cpu"])
def test_text_of_any_size_is_read(made, data_folder, tmp_path, target):
    """PP-OCR's direction classifier: open height and width, given by the data it is proven on."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "text.npz", x=rng.random((3, 3, 48, 192), dtype=np.float32) * 2 - 1)
    source = data_folder / "models/onnx/ch_ppocr_mobile_v2.0_cls_mobile.onnx"
    conversion = made(source, target, data=str(tmp_path / "text.npz"))
    with ipj_edge.load(conversion.path) as model:
        (name,) = (each.name for each in model.manifest.outputs)
        for height, width in ((48, 192), (64, 100), (48, 160)):
            found = model.run(rng.random((2, 3, height, width), dtype=np.float32)).outputs[name]
            assert found.shape == (2, 2)
            np.testing.assert_allclose(found.sum(1), 1, atol=1e-4)


@pytest.mark.data
def test_open_sizes_nobody_gave_are_asked_for(made, data_folder):

    with pytest.raises(ConfigError, match="dynamic size 'x_dim2'"):
        made(data_folder / "models/onnx/ch_ppocr_mobile_v2.0_cls_mobile.onnx", "onnxruntime-cpu")


def picture(data_folder, name):
    image = pytest.importorskip("PIL.Image")
    with image.open(next((data_folder / "images").glob(f"{name}.*"))) as file:
        rgb = np.asarray(file.convert("RGB").resize((352, 352), image.Resampling.BILINEAR), np.float32)
    return np.ascontiguousarray(rgb[..., ::-1].transpose(2, 0, 1))[None] / 255


@pytest.mark.data
@pytest.mark.parametrize("target", ONNX_TARGETS)
def test_a_detection_head_finds_its_things(made, data_folder, target):
    names = (data_folder / "models/onnx/FastestDet_coco.names").read_text().split("\n")
    wanted = {"cat": "cat", "bird": "bird", "hot_dog": "hot dog", "grace_hopper": "person", "squat": "person"}
    with ipj_edge.load(made(data_folder / "models/onnx/FastestDet.onnx", target).path) as model:
        for file, thing in wanted.items():
            (maps,) = model.run(picture(data_folder, file)).outputs.values()
            scores = maps[0, 0] ** 0.6 * maps[0, 5:] ** 0.4
            assert names[int(scores.max((1, 2)).argmax())].replace("hotdog", "hot dog") == thing, file


@pytest.mark.data
@pytest.mark.parametrize("target", ONNX_TARGETS)
def test_three_outputs_of_one_tone(made, data_folder, target):
    """basic_pitch takes logarithms of energies near zero: its own answers move by 1e-3 with the order of a sum."""
    conversion = made(data_folder / "models/onnx/basic_pitch_nmp.onnx", target, tolerance=2e-3)
    tone = (0.5 * np.sin(2 * np.pi * 440 * np.arange(43844) / 22050)).astype(np.float32)[None, :, None]
    with ipj_edge.load(conversion.path) as model:
        outputs = model.run(tone).outputs
    assert sorted(value.shape for value in outputs.values()) == [(1, 172, 88), (1, 172, 88), (1, 172, 264)]
    notes = outputs["StatefulPartitionedCall:1"][0]
    assert np.bincount(notes.argmax(1)).argmax() + 21 == 69, "A4"
