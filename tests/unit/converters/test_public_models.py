"""Public models of known accuracy, through every source and the ONNX converter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from ipj_edge.errors import UnsupportedError
from ipj_edge.protocols import ConversionTask
from ipj_edge.values import ConversionOptions
from ipj_edge_converters.onnx.convert import ToOnnx
from ipj_edge_converters.onnx.source.opener import OnnxOpener
from ipj_edge_converters.torch.opener import TorchOpener
from ipj_edge_converters.torch.pt2 import Pt2Opener

pytestmark = pytest.mark.data

# name: (file, precision of the source)
RESNETS = {
    "factory": ("resnet20-12fca82f.th", "fp32"),
    "pt2": ("resnet20_cifar10.pt2", "fp32"),
    "dynamic": ("resnet20_cifar10_dyn.onnx", "fp32"),
    "external": ("resnet20_cifar10_external.onnx", "fp32"),
    "fp16": ("resnet20_cifar10_fp16.onnx", "fp16"),
    "uint8 nhwc": ("resnet20_cifar10_uint8_nhwc.onnx", "fp32"),
}

# Batch normalisation folded into a convolution turns its four vectors into one bias; the nine blocks of the ONNX
# files were exported so. The uint8 file also holds the mean and deviation of its preprocessing.
WEIGHTS = {"factory": 269722, "pt2": 269722, "uint8 nhwc": 269040}


def open_resnet(name, data_folder, request_for):
    path = data_folder / "models" / "cifar10_resnet20" / RESNETS[name][0]
    if name == "factory":
        factory = f"{Path(__file__).with_name('resnet20.py')}:ResNet20"
        return TorchOpener().open(request_for(factory, ("image", (1, 3, 32, 32)), weights=path))
    return (Pt2Opener() if name == "pt2" else OnnxOpener()).open(request_for(path))


def feeds_for(source, images, normalise):
    pixels = source.inputs[0].dtype == "uint8"
    return {source.inputs[0].name: images if pixels else normalise(images)}


def convert(source, precision, calibration, tmp_path, isa=""):
    into = tmp_path / f"{precision}{isa}"
    into.mkdir()
    task = ConversionTask(
        source=source,
        target="onnxruntime-cpu",
        precision=precision,
        calibration=calibration,
        into=into,
        options=ConversionOptions(isa=isa),
    )
    said = ToOnnx().convert(task)
    return said, onnxruntime.InferenceSession(into / said.file)


def accuracy(answers, labels):
    return float((answers.argmax(1) == labels).mean())


@pytest.mark.slow
@pytest.mark.parametrize("name", RESNETS)
def test_resnet20_keeps_its_accuracy_from_every_source(name, data_folder, cifar, normalise, request_for, tmp_path):
    source = open_resnet(name, data_folder, request_for)
    assert source.precision == RESNETS[name][1]
    assert source.inputs[0].shape[0] == "batch"
    test = feeds_for(source, cifar["test"], normalise)
    wanted = source.run(test)[source.outputs[0].name]
    assert abs(accuracy(wanted, cifar["labels"]) - 0.915) <= 0.002

    said, session = convert(source, "fp32", None, tmp_path)
    found = session.run(None, test)[0]
    assert accuracy(found, cifar["labels"]) == accuracy(wanted, cifar["labels"])
    assert np.linalg.norm(found - wanted) / np.linalg.norm(wanted) <= 1e-5

    said, session = convert(source, "int8", feeds_for(source, cifar["train"][:300], normalise), tmp_path)
    found = session.run(None, test)[0]
    assert accuracy(found, cifar["labels"]) >= 0.90
    assert np.linalg.norm(found - wanted) / np.linalg.norm(wanted) <= 0.15
    assert (found.argmax(1) == wanted.argmax(1)).mean() >= 0.97
    kinds = {operator.split()[0] for operator in said.operators.float_operators}
    assert kinds <= {"ReduceMean", "Sub", "Div", "Mul"}


@pytest.mark.parametrize("name", RESNETS)
def test_resnet20_has_40_551_040_multiply_accumulates_on_every_route(name, data_folder, request_for):
    count = open_resnet(name, data_folder, request_for).count()
    assert count.macs == 40_551_040
    assert count.parameters == WEIGHTS.get(name, 269034)


@pytest.mark.slow
def test_resnet20_with_seven_bit_weights_keeps_its_accuracy(data_folder, cifar, normalise, request_for, tmp_path):
    source = open_resnet("dynamic", data_folder, request_for)
    calibration = feeds_for(source, cifar["train"][:300], normalise)
    said, session = convert(source, "int8", calibration, tmp_path, isa="avx2")
    assert said.isa == ""
    found = session.run(None, feeds_for(source, cifar["test"], normalise))[0]
    assert accuracy(found, cifar["labels"]) >= 0.90


def test_an_int8_resnet20_runs_as_written_and_passes_through(data_folder, cifar, normalise, request_for, tmp_path):
    path = data_folder / "models" / "cifar10_resnet20" / "resnet20_cifar10_int8_qdq.onnx"
    source = OnnxOpener().open(request_for(path))
    assert source.precision == "int8"
    test = feeds_for(source, cifar["test"], normalise)
    assert abs(accuracy(source.run(test)["logits"], cifar["labels"]) - 0.911) <= 0.002
    _, session = convert(source, "int8", None, tmp_path)
    original = onnxruntime.InferenceSession(path)
    np.testing.assert_array_equal(session.run(None, test)[0], original.run(None, test)[0])


def test_three_exits_are_three_outputs(data_folder, cifar, normalise, request_for):
    path = data_folder / "models" / "cifar10_resnet20" / "resnet20_cifar10_3exit.onnx"
    source = OnnxOpener().open(request_for(path))
    answers = source.run(feeds_for(source, cifar["test"], normalise))
    found = {name: round(accuracy(answer, cifar["labels"]), 3) for name, answer in answers.items()}
    assert found == {"logits_exit1": 0.626, "logits_exit2": 0.766, "logits_final": 0.915}


@pytest.mark.parametrize("opset", [7, 8])
def test_the_cntk_mnist_files_keep_their_accuracy(opset, data_folder, mnist, request_for, tmp_path):
    source = OnnxOpener().open(request_for(data_folder / "models" / "onnx" / f"mnist_cntk_opset{opset}.onnx"))
    assert [(item.name, item.shape) for item in source.inputs] == [("Input3", (1, 1, 28, 28))]
    assert source.count().macs == 8 * 25 * 28 * 28 + 16 * 8 * 25 * 14 * 14 + 256 * 10
    answers = source.run({"Input3": mnist["images"]})["Plus214_Output_0"]
    assert accuracy(answers, mnist["labels"]) == 0.9891
    said, session = convert(source, "fp32", None, tmp_path)
    assert (said.static_batch, said.opset) == (1, opset)
    found = np.concatenate([session.run(None, {"Input3": image[None]})[0] for image in mnist["images"][:500]])
    np.testing.assert_allclose(found, answers[:500], rtol=1e-4, atol=1e-2)
    said, session = convert(source, "int8", {"Input3": mnist["images"][-200:]}, tmp_path)
    found = np.concatenate([session.run(None, {"Input3": image[None]})[0] for image in mnist["images"][:1000]])
    assert accuracy(found, mnist["labels"][:1000]) >= accuracy(answers[:1000], mnist["labels"][:1000]) - 0.005


def test_models_with_odd_features_open_and_run(data_folder, request_for):
    folder = data_folder / "models" / "onnx"
    nameless = OnnxOpener().open(request_for(folder / "uint8_preprocessor.onnx"))
    assert nameless.inputs[0].dtype == "uint8"
    answer = nameless.run({"Input": np.zeros((1, 1996800), np.uint8)})["Output"]
    assert answer.shape == (1, 224, 224, 3)
    text = OnnxOpener().open(request_for(folder / "ch_ppocr_mobile_v2.0_cls_mobile.onnx", ("x", (1, 3, 48, 192))))
    assert text.inputs[0].shape == ("batch", 3, 48, 192)
    assert text.count().macs is not None
    voice = OnnxOpener().open(request_for(folder / "silero_vad_16k_op15.onnx", ("input", (1, 576))))
    assert [(item.shape, item.batch_axis) for item in voice.inputs] == [
        ((1, 576), 0),
        ((2, 1, 128), None),
        ((), None),
    ]
    assert voice.notes == ("the batch is static: 'state' has its samples on axis 1",)
    feeds = {
        "input": np.zeros((1, 576), np.float32),
        "state": np.zeros((2, 1, 128), np.float32),
        "sr": np.array(16000),
    }
    assert voice.run(feeds)["output"][0, 0] < 0.1


def test_a_custom_operator_is_named(data_folder, request_for):
    with pytest.raises(UnsupportedError, match="MyNoisyReluDomain::"):
        OnnxOpener().open(request_for(data_folder / "models" / "broken" / "custom_domain_noisy_relu.onnx"))
