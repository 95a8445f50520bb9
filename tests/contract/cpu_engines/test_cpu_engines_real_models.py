"""Public models with known accuracy, through the converter and the target."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from ipj_edge.values import Settings
from ipj_edge_targets.onnxruntime_cpu import OnnxruntimeCpu
from ipj_edge_targets.openvino_cpu import OpenvinoCpu

pytestmark = [pytest.mark.data, pytest.mark.slow]

MEAN = np.array([0.485, 0.456, 0.406])
STD = np.array([0.229, 0.224, 0.225])


def tiles(path):
    """Read 1,000 CIFAR-10 images, uint8 of shape (1000, 32, 32, 3), from their lossless sheet."""
    image = pytest.importorskip("PIL.Image")
    sheet = np.asarray(image.open(path).convert("RGB"))
    return sheet.reshape(25, 32, 40, 32, 3).transpose(0, 2, 1, 3, 4).reshape(1000, 32, 32, 3)


def normalised(images):
    return ((images / 255 - MEAN) / STD).transpose(0, 3, 1, 2).astype(np.float32)


@pytest.fixture(scope="module")
def cifar(data_folder):
    folder = data_folder / "cifar10"
    labels = np.load(folder / "test_labels.npy")
    return tiles(folder / "test_0.webp"), labels, tiles(folder / "train_0.webp")[:300]


@pytest.fixture
def resnet(data_folder, onnx_source, tensor_spec):
    def opened(variant, dtype="float32", precision="fp32"):
        path = data_folder / f"models/cifar10_resnet20/resnet20_cifar10_{variant}.onnx"
        inputs = (tensor_spec("input", ("batch", 3, 32, 32), dtype),)
        return onnx_source(path, inputs, (tensor_spec("logits", ("batch", 10), dtype),), precision)

    return opened


def accuracy(bundle, inputs, labels, batch=100, target=OpenvinoCpu):
    (session,) = target().open(bundle, Settings())
    (take,), (add,) = session.stage.takes, session.stage.adds
    right = 0
    for start in range(0, len(inputs), batch):
        part = slice(start, start + batch)
        outputs = session.run({take.name: np.ascontiguousarray(inputs[part])})[add.name]
        right += int((outputs.argmax(axis=1) == labels[part]).sum())
    session.close()
    return right / len(inputs)


def test_resnet20_keeps_its_accuracy_in_fp32(resnet, cifar, convert, tmp_path):
    images, labels, _ = cifar
    bundle = convert(resnet("dyn"), tmp_path / "out")
    assert accuracy(bundle, normalised(images), labels) == pytest.approx(0.915, abs=0.002)


def test_resnet20_keeps_its_accuracy_in_int8(resnet, cifar, convert, tmp_path):
    images, labels, train = cifar
    bundle = convert(resnet("dyn"), tmp_path / "out", "int8", {"input": normalised(train)})
    assert accuracy(bundle, normalised(images), labels) >= 0.90
    (stage,) = bundle.manifest.stages
    assert stage.operators.float_operators == ()
    assert stage.operators.total >= 21


def test_resnet20_with_seven_bit_weights_keeps_its_accuracy(resnet, cifar, convert, tmp_path):
    images, labels, train = cifar
    bundle = convert(resnet("dyn"), tmp_path / "out", "int8", {"input": normalised(train)}, isa="avx2")
    assert bundle.manifest.requires.isa == ""
    assert accuracy(bundle, normalised(images), labels) >= 0.90


def test_resnet20_with_external_weights_is_self_contained(resnet, cifar, convert, tmp_path):
    images, labels, _ = cifar
    bundle = convert(resnet("external"), tmp_path / "out")
    assert accuracy(bundle, normalised(images), labels) == pytest.approx(0.915, abs=0.002)


def test_resnet20_in_float16_keeps_its_accuracy(resnet, cifar, convert, tmp_path):
    images, labels, _ = cifar
    bundle = convert(resnet("fp16", "float16"), tmp_path / "out")
    inputs = normalised(images).astype(np.float16)
    assert accuracy(bundle, inputs, labels) == pytest.approx(0.915, abs=0.002)


def test_resnet20_that_is_already_int8_keeps_its_scales(resnet, cifar, convert, tmp_path):
    images, labels, _ = cifar
    bundle = convert(resnet("int8_qdq", precision="int8"), tmp_path / "out", "int8")
    assert accuracy(bundle, normalised(images), labels) >= 0.90
    (stage,) = bundle.manifest.stages
    assert len(stage.operators.float_operators) < stage.operators.total / 4


def test_resnet20_on_raw_pixels_keeps_its_accuracy(data_folder, cifar, onnx_source, tensor_spec, convert, tmp_path):
    images, labels, train = cifar
    path = data_folder / "models/cifar10_resnet20/resnet20_cifar10_uint8_nhwc.onnx"
    inputs = (tensor_spec("image", ("batch", 32, 32, 3), "uint8"),)
    source = onnx_source(path, inputs, (tensor_spec("logits", ("batch", 10)),))
    assert accuracy(convert(source, tmp_path / "fp32"), images, labels) == pytest.approx(0.915, abs=0.002)
    int8 = convert(source, tmp_path / "int8", "int8", {"image": train})
    assert accuracy(int8, images, labels) >= 0.90


def test_resnet20_in_float16_can_be_quantized(resnet, cifar, convert, tmp_path):
    images, labels, train = cifar
    calibration = {"input": normalised(train[:100]).astype(np.float16)}
    bundle = convert(resnet("fp16", "float16"), tmp_path / "out", "int8", calibration)
    assert accuracy(bundle, normalised(images).astype(np.float16), labels) >= 0.90


@pytest.mark.parametrize(("variant", "precision", "least"), [("dyn", "fp32", 0.913), ("int8_qdq", "int8", 0.909)])
def test_resnet20_keeps_its_accuracy_on_onnxruntime(resnet, cifar, onnx_bundle, tmp_path, variant, precision, least):
    images, labels, _ = cifar
    bundle = onnx_bundle(resnet(variant, precision=precision), tmp_path / "out")
    assert least <= accuracy(bundle, normalised(images), labels, target=OnnxruntimeCpu) <= least + 0.004


@pytest.mark.parametrize("opset", [7, 8])
def test_cntk_mnist_keeps_its_accuracy(data_folder, onnx_source, tensor_spec, convert, onnx_bundle, tmp_path, opset):
    def idx(name, skip):
        return np.frombuffer(gzip.decompress((data_folder / "mnist" / name).read_bytes())[skip:], np.uint8)

    images = idx("t10k-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28).astype(np.float32)
    labels = idx("t10k-labels-idx1-ubyte.gz", 8)
    inputs = (tensor_spec("Input3", (1, 1, 28, 28)),)
    outputs = (tensor_spec("Plus214_Output_0", (1, 10)),)
    source = onnx_source(data_folder / f"models/onnx/mnist_cntk_opset{opset}.onnx", inputs, outputs)
    bundle = convert(source, tmp_path / "out")
    assert bundle.manifest.batch.static == 1
    assert accuracy(bundle, images, labels, batch=1) == 0.9891
    as_it_is = onnx_bundle(source, tmp_path / "onnx")
    assert accuracy(as_it_is, images, labels, batch=1, target=OnnxruntimeCpu) == 0.9891
