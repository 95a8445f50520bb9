"""Public models of known accuracy through the whole pipeline: convert, prove, and measure the saved bundles."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

import ipj_edge
from ipj_edge.conversion import ConvertRequest, convert
from ipj_edge.values import TensorSpec

pytestmark = [
    pytest.mark.data,
    pytest.mark.slow,
    # Raised inside torch's exporter and the libraries of the TFLite route, not by our calls.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
EVERYWHERE = ("openvino-cpu", "onnxruntime-cpu", "tflite-cpu")
RESNET = Path(__file__).parents[2] / "unit" / "converters" / "resnet20.py"
FROM_ONNX = ("openvino-cpu", "onnxruntime-cpu")


def _pixels(file: Path) -> np.ndarray:
    from PIL import Image

    with Image.open(file) as image:
        tiles = np.asarray(image.convert("RGB"))
    return tiles.reshape(25, 32, 40, 32, 3).transpose(0, 2, 1, 3, 4).reshape(1000, 32, 32, 3)


@pytest.fixture(scope="module")
def cifar(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Calibration and test sets, normalised NCHW floats and raw NHWC bytes."""
    folder = tmp_path_factory.mktemp("cifar")
    labels = np.load(data_folder / "cifar10" / "test_labels.npy").astype(np.int64)
    test, train = (
        _pixels(data_folder / "cifar10" / "test_0.webp"),
        _pixels(data_folder / "cifar10" / "train_0.webp")[:300],
    )

    def floats(pixels: np.ndarray) -> np.ndarray:
        return ((pixels / 255.0 - MEAN) / STD).astype(np.float32).transpose(0, 3, 1, 2)

    np.savez(folder / "cal.float.npz", x=floats(train))
    np.savez(folder / "test.float.npz", x=floats(test), labels=labels)
    np.savez(folder / "cal.bytes.npz", x=train)
    np.savez(folder / "test.bytes.npz", x=test, labels=labels)
    return folder


@pytest.mark.parametrize(
    ("source", "values", "targets"),
    [
        ("resnet20_cifar10.pt2", "float", EVERYWHERE),
        ("resnet20-12fca82f.th", "float", EVERYWHERE),
        ("resnet20_cifar10_dyn.onnx", "float", FROM_ONNX),
        ("resnet20_cifar10_external.onnx", "float", FROM_ONNX),
        ("resnet20_cifar10_fp16.onnx", "float", FROM_ONNX),
        ("resnet20_cifar10_uint8_nhwc.onnx", "bytes", FROM_ONNX),
    ],
)
def test_resnet20_keeps_its_accuracy_on_every_target_its_source_reaches(
    data_folder: Path, cifar: Path, tmp_path: Path, source: str, values: str, targets: tuple[str, ...]
) -> None:
    file = data_folder / "models" / "cifar10_resnet20" / source
    weights = file.suffix == ".th"
    outcomes = convert(
        ConvertRequest(
            source=f"{RESNET}:ResNet20" if weights else str(file),
            weights=file if weights else None,
            inputs=(TensorSpec(name="image", shape=(1, 3, 32, 32), dtype="float32"),) if weights else (),
            targets=targets,
            precisions=("fp32", "int8"),
            calibration=str(cifar / f"cal.{values}.npz"),
            data=str(cifar / f"test.{values}.npz"),
            into=tmp_path,
        )
    )
    for outcome in outcomes:
        assert outcome.error is None, (outcome.target, outcome.precision, outcome.error)
        assert outcome.accuracy is not None
        assert outcome.accuracy[0] == pytest.approx(0.915, abs=0.002)
        if outcome.precision == "fp32":
            assert outcome.accuracy[1] == pytest.approx(0.915, abs=0.002), outcome.target
        else:
            assert outcome.accuracy[1] >= 0.90, outcome.target
    assert {(outcome.target, outcome.precision) for outcome in outcomes} == {
        (target, precision) for target in targets for precision in ("fp32", "int8")
    }


@pytest.mark.parametrize("name", ["mnist_cntk_opset7.onnx", "mnist_cntk_opset8.onnx"])
def test_mnist_of_opset_7_and_8_keeps_its_accuracy(data_folder: Path, tmp_path: Path, name: str) -> None:
    with gzip.open(data_folder / "mnist" / "t10k-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28).astype(np.float32)
    with gzip.open(data_folder / "mnist" / "t10k-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    outcomes = convert(
        ConvertRequest(source=str(data_folder / "models" / "onnx" / name), targets=FROM_ONNX, into=tmp_path)
    )
    for outcome in outcomes:
        assert outcome.bundle is not None, outcome.error
        with ipj_edge.load(outcome.bundle.path) as model:
            scores = model.run(images).outputs["Plus214_Output_0"]
        assert (scores.argmax(1) == labels).mean() == pytest.approx(0.9891, abs=1e-4), outcome.target
