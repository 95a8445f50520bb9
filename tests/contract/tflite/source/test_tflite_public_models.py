"""Public .tflite files of known accuracy, through convert, load and run. Figures are those of the data's README."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from ipj_edge import load
from ipj_edge.bundles.bundle import open_bundle
from ipj_edge.samples.preprocess import read_image
from ipj_edge.values import Preprocessing

pytestmark = [pytest.mark.data, pytest.mark.slow]

# ImageNet labels that are right for each picture; the first lines of the labels file are the background.
PICTURES = {
    "cat.png": ("tabby", "tiger cat", "Egyptian cat", "Persian cat", "Siamese cat"),
    "bird.png": ("chickadee",),
    "sunflower.png": ("daisy",),
    "dragonfly.png": ("dragonfly",),
    "grace_hopper.png": ("military uniform",),
    "hot_dog.jpg": ("hotdog",),
    "parrot.jpg": ("macaw",),
}


@pytest.fixture(scope="module")
def cifar(data_folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The first thousand test images as real values 0..255, and their labels."""
    pixels = read_image(data_folder / "cifar10" / "test_0.webp")
    images = pixels.reshape(25, 32, 40, 32, 3).transpose(0, 2, 1, 3, 4).reshape(1000, 32, 32, 3)
    return images.astype(np.float32), np.load(data_folder / "cifar10" / "test_labels.npy")


@pytest.fixture(scope="module")
def mnist(data_folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Ten thousand digits as real values 0..1, and their labels."""
    images = gzip.decompress((data_folder / "mnist" / "t10k-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((data_folder / "mnist" / "t10k-labels-idx1-ubyte.gz").read_bytes())
    pixels = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28)
    return pixels.astype(np.float32) / 255, np.frombuffer(labels, np.uint8, offset=8)


@pytest.fixture(scope="module")
def keywords(data_folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """A thousand spectrograms as real values, and their labels."""
    with np.load(data_folder / "kws" / "mlperf_tiny_kws01.npz") as file:
        stored, labels = file["features_int8"], file["labels"]
    return ((stored.astype(np.float32) - 83) * np.float32(0.5847029))[..., None], labels


def right(bundle: Path, samples: np.ndarray, labels: np.ndarray) -> int:
    with load(bundle) as model:
        (scores,) = model.run(samples).outputs.values()
    return int((scores.argmax(axis=1) == labels).sum())


def test_keyword_spotting_int8_has_its_902(data_folder, converted, keywords):
    bundle = converted(data_folder / "models/mlperf_tiny/kws_ref_model.tflite")
    assert right(bundle, *keywords) == 902


def test_a_file_called_float32_with_int8_weights_is_told_to_be_dynamic_int8(data_folder, converted, keywords):
    bundle = converted(data_folder / "models/mlperf_tiny/kws_ref_model_float32.tflite")
    manifest = open_bundle(bundle).manifest
    assert (manifest.precision, manifest.scheme) == ("int8", "dynamic")
    assert manifest.stages[0].weights["int8"] > 4 * manifest.stages[0].weights["float32"]
    assert any("whatever the file is called" in note for note in manifest.notes)
    assert abs(right(bundle, *keywords) - 900) <= 1


@pytest.mark.parametrize(("file", "expected"), [("pretrainedResnet", 881), ("pretrainedResnet_quant", 878)])
def test_float_and_int8_image_classification_take_the_same_pixels(data_folder, converted, cifar, file, expected):
    bundle = converted(data_folder / f"models/mlperf_tiny/{file}.tflite")
    assert right(bundle, *cifar) == expected


@pytest.mark.parametrize("file", ["vww_96_float", "vww_96_int8"])
def test_persons_are_told_in_all_pictures_but_the_bird(data_folder, converted, file):
    rule = Preprocessing(size=(96, 96), layout="NHWC", scale=1 / 255)
    bundle = converted(data_folder / f"models/mlperf_tiny/{file}.tflite", preprocessing={"": rule})
    persons = {"grace_hopper", "squat"}
    wrong = []
    with load(bundle) as model:
        for path in sorted((data_folder / "images").iterdir()):
            # The two grey pictures belong to another, one-channel detector.
            if path.suffix in (".png", ".jpg") and "gray" not in path.stem:
                (scores,) = model.run_image(read_image(path)).outputs.values()
                if (scores[0, 1] > scores[0, 0]) != (path.stem in persons):
                    wrong.append(path.stem)
    assert wrong == ["bird"]


@pytest.mark.parametrize(
    ("file", "size", "expected"),
    [("mobilenet_v2_1.0_224_quant", 224, 7), ("mobilenet_v1_0.25_128_quant", 128, 4)],
)
def test_a_uint8_model_names_pictures_through_its_preprocessing(data_folder, converted, file, size, expected):
    # Stored pixels p mean (p − 128) / 128.
    rule = Preprocessing(size=(size, size), layout="NHWC", scale=1 / 128, mean=(1.0,))
    bundle = converted(data_folder / f"models/coral/{file}.tflite", preprocessing={"": rule})
    names = (data_folder / "images" / "imagenet_labels_1001.txt").read_text().splitlines()
    found = 0
    with load(bundle) as model:
        for picture, accepted in PICTURES.items():
            (scores,) = model.run_image(read_image(data_folder / "images" / picture)).outputs.values()
            found += any(name in names[int(scores[0].argmax())] for name in accepted)
    assert found == expected


@pytest.mark.parametrize(
    ("file", "stream", "independent"), [("mnist_lstm_float", 0.9205, 0.97), ("mnist_lstm_int8", 0.9190, 0.97)]
)
def test_an_lstm_keeps_its_state_until_reset(data_folder, converted, mnist, file, stream, independent):
    images, labels = mnist
    bundle = converted(data_folder / f"models/tflite/{file}.tflite")
    assert [state.kind for state in open_bundle(bundle).manifest.state] == ["variable", "variable"]
    with load(bundle) as model:
        # One after the other, as the README's figures were taken: what one digit left behind disturbs the next.
        one_by_one = [model.run(image).outputs["sequential"][0].argmax() for image in images]
        together = model.run(images).outputs["sequential"].argmax(axis=1)
        after_reset = []
        for image in images[:500]:
            model.reset()
            after_reset.append(model.run(image).outputs["sequential"][0].argmax())
    assert float((np.array(one_by_one) == labels).mean()) == pytest.approx(stream, abs=1e-9)
    assert float((together == labels).mean()) > independent
    assert (together[:500] == after_reset).all()


@pytest.mark.parametrize(("file", "expected"), [("ad01_fp32", 9.707), ("ad01_int8", 10.265)])
def test_the_autoencoder_has_its_mean_squared_error(data_folder, converted, file, expected):
    rows = np.fromfile(data_folder / "anomaly/normal_id_01_00000000_hist_librosa.bin", "<f4").reshape(200, 128)
    windows = np.stack([rows[start : start + 5].reshape(-1) for start in range(196)])
    with load(converted(data_folder / f"models/mlperf_tiny/{file}.tflite")) as model:
        (found,) = model.run(windows).outputs.values()
    assert float(((found - windows) ** 2).mean()) == pytest.approx(expected, abs=0.01)


def test_the_same_model_as_tflite_and_as_onnx_answers_alike(data_folder, converted):
    time = np.arange(43844) / 22050
    audio = np.stack([np.sin(2 * np.pi * 440 * time), 0.3 * np.sin(2 * np.pi * 523.25 * time)])
    audio = audio.astype(np.float32)[..., None]
    tflite = converted(data_folder / "models/tflite/basic_pitch_nmp.tflite", max_batch=2)
    onnx = converted(data_folder / "models/onnx/basic_pitch_nmp.onnx", "onnxruntime-cpu", max_batch=2)
    with load(tflite) as one, load(onnx) as other:
        first, second = one.run(audio).outputs, other.run(audio).outputs
    assert sorted(first) == ["contour", "note", "onset"]
    # The signature has names of its own; inside, the tensors are called as in the ONNX file.
    inside = {port.name: port.engine_name for port in open_bundle(tflite).manifest.stages[0].adds}
    assert sorted(inside.values()) == sorted(second)
    for name, value in first.items():
        assert np.abs(value - second[inside[name]]).max() < 1e-5, name
    # MIDI note 69 is 440 Hz; the model's lowest key is note 21.
    assert first["note"][0].mean(axis=0).argmax() + 21 == 69
