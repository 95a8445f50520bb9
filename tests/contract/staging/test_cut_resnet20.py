"""ResNet-20 with three exits on CIFAR-10: stages of every engine equal the whole file on real images, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from ipj_edge_converters.onnx.cut import cut_onnx
from ipj_edge_converters.onnx.files import load_onnx, save_onnx
from ipj_edge_converters.onnx.macs import count_onnx
from ipj_edge_converters.onnx.quantize.static import Choices, quantize
from ipj_edge_converters.onnx.stage import last_exit_only as last_exit_only_onnx
from ipj_edge_converters.openvino.cut import cut_openvino
from ipj_edge_converters.tflite.cut import cut_tflite, last_exit_only

pytestmark = [pytest.mark.data, pytest.mark.slow]

# Share of right answers at each exit, as published with the file.
ACCURACIES = (0.626, 0.766, 0.915)


@pytest.fixture(scope="module")
def images(resnet20_exits: Any, data_folder: Path) -> np.ndarray:
    return resnet20_exits.images(data_folder, "test_0")


@pytest.fixture(scope="module", params=["fp32", "int8"])
def whole(
    request: pytest.FixtureRequest, resnet20_exits: Any, data_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The published ONNX file, and its int8 form by our quantizer."""
    published = data_folder / resnet20_exits.ONNX_FILE
    if request.param == "fp32":
        return published
    path = tmp_path_factory.mktemp("int8") / "whole.onnx"
    calibration = {"input": resnet20_exits.images(data_folder, "train_0")[:200]}
    save_onnx(quantize(published, resnet20_exits.INPUTS, calibration, Choices())[0], path)
    return path


def test_the_chain_equals_the_whole_and_is_as_accurate(
    whole: Path, resnet20_exits: Any, images: np.ndarray, data_folder: Path, engine: Any, run_chain: Callable,
    assert_chain_equals: Callable, tmp_path: Path,
) -> None:  # fmt: skip
    cuts = cut_onnx(whole, ("logits_final", "logits_exit1", "logits_exit2"), resnet20_exits.INPUTS, tmp_path)
    assert [each.exit_output for each in cuts] == list(resnet20_exits.EXITS)
    for batch in (1, 32, 1000):
        assert_chain_equals(engine, whole, tmp_path, cuts, {"input": images[:batch]})
    for row in range(1, 40):
        assert_chain_equals(engine, whole, tmp_path, cuts, {"input": images[row : row + 1]})
    labels = np.load(data_folder / "cifar10" / "test_labels.npy")
    pool = run_chain(engine, tmp_path, cuts, {"input": images})
    for name, published in zip(resnet20_exits.EXITS, ACCURACIES, strict=True):
        allowed = 0.0005 if "int8" not in str(whole) else 0.015
        assert (pool[name].argmax(1) == labels).mean() == pytest.approx(published, abs=allowed)


def test_the_unsplit_program_equals_the_chain(
    whole: Path, resnet20_exits: Any, images: np.ndarray, engine: Any, run_chain: Callable, tmp_path: Path
) -> None:
    cuts = cut_onnx(whole, resnet20_exits.EXITS, resnet20_exits.INPUTS, tmp_path)
    save_onnx(last_exit_only_onnx(load_onnx(whole), "logits_final"), tmp_path / "unsplit.onnx")
    for batch in (1, 32):
        feeds = {"input": images[:batch]}
        unsplit = engine.run(tmp_path / "unsplit.onnx", feeds)["logits_final"]
        np.testing.assert_array_equal(run_chain(engine, tmp_path, cuts, feeds)["logits_final"], unsplit)


def test_one_tensor_crosses_each_boundary(whole: Path, resnet20_exits: Any, tmp_path: Path) -> None:
    cuts = cut_onnx(whole, resnet20_exits.EXITS, resnet20_exits.INPUTS, tmp_path)
    assert [port.shape for each in cuts for port in each.adds[1:]] == [("batch", 16, 32, 32), ("batch", 32, 16, 16)]
    assert {port.dtype for each in cuts for port in each.adds[1:]} == (
        {"uint8"} if "int8" in str(whole) else {"float32"}
    )


def test_work_and_weights_of_the_stages_add_up(whole: Path, resnet20_exits: Any, tmp_path: Path) -> None:
    cuts = cut_onnx(whole, resnet20_exits.EXITS, resnet20_exits.INPUTS, tmp_path)
    counted = count_onnx(load_onnx(whole), resnet20_exits.INPUTS)
    assert sum(each.macs or 0 for each in cuts) == counted.macs
    assert sum(each.parameters for each in cuts) == counted.parameters


def test_openvino_files_of_the_stages_equal_the_whole(
    whole: Path, resnet20_exits: Any, images: np.ndarray, openvino_files: Any, assert_chain_equals: Callable,
    tmp_path: Path,
) -> None:  # fmt: skip
    cuts = cut_openvino(whole, resnet20_exits.EXITS, resnet20_exits.INPUTS, tmp_path)
    for batch in (1, 32):
        assert_chain_equals(openvino_files, whole, tmp_path, cuts, {"input": images[:batch]})


class TfliteFile:
    """A .tflite file in the engine, one thread, its tensors by pool name."""

    def __init__(self, path: Path, takes: Any, adds: Any) -> None:
        self._interpreter = Interpreter(model_path=str(path), num_threads=1)
        self._interpreter.allocate_tensors()
        details = (*self._interpreter.get_input_details(), *self._interpreter.get_output_details())
        places = {detail["name"]: detail["index"] for detail in details}
        self._takes = [(port.name, places[port.engine_name]) for port in takes]
        self._adds = [(port.name, places[port.engine_name]) for port in adds]

    def run(self, pool: dict[str, np.ndarray]) -> None:
        for name, index in self._takes:
            self._interpreter.set_tensor(index, pool[name])
        self._interpreter.invoke()
        for name, index in self._adds:
            pool[name] = self._interpreter.get_tensor(index)


@pytest.fixture(scope="module", params=["fp32", "int8"])
def converted(
    request: pytest.FixtureRequest, resnet20_exits: Any, data_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """The network converted from torch: its folder and files."""
    folder = tmp_path_factory.mktemp(str(request.param))
    return folder, resnet20_exits.tflite(data_folder, request.param, folder)


def test_tflite_stages_equal_the_whole_and_are_as_accurate(
    converted: Any, resnet20_exits: Any, images: np.ndarray, data_folder: Path
) -> None:
    folder, files = converted
    exits = ("logits_final", "logits_exit2", "logits_exit1")
    cuts = cut_tflite(folder / files.file, exits, files.takes, files.adds, 1, folder)
    data, _ = last_exit_only(folder / files.file, "logits_final", files.takes, files.adds, 1)
    (folder / "unsplit.tflite").write_bytes(data)
    whole = TfliteFile(folder / files.file, files.takes, files.adds)
    unsplit = TfliteFile(folder / "unsplit.tflite", files.takes, files.adds[2:])
    stages = [TfliteFile(folder / each.file, each.takes, each.adds) for each in cuts]
    right = np.zeros(3)
    for image, label in zip(images, np.load(data_folder / "cifar10" / "test_labels.npy"), strict=True):
        pool = {"input": _engine_values(files.takes[0], image[None])}
        expected, alone = dict(pool), dict(pool)
        whole.run(expected)
        unsplit.run(alone)
        for stage in stages:
            stage.run(pool)
        for place, name in enumerate(resnet20_exits.EXITS):
            np.testing.assert_array_equal(pool[name], expected[name])
            right[place] += pool[name].argmax() == label
        np.testing.assert_array_equal(alone["logits_final"], expected["logits_final"])
    allowed = 0.0005 if files.takes[0].dtype == "float32" else 0.015
    assert right / len(images) == pytest.approx(ACCURACIES, abs=allowed)


def test_tflite_boundaries_hand_over_the_precision_of_the_file(converted: Any, resnet20_exits: Any) -> None:
    folder, files = converted
    cuts = cut_tflite(folder / files.file, resnet20_exits.EXITS, files.takes, files.adds, 1, folder)
    crossing = [port for each in cuts for port in each.adds[1:]]
    assert [port.shape for port in crossing] == [(1, 32, 32, 16), (1, 16, 16, 32)]
    assert {port.dtype for port in crossing} == {files.takes[0].dtype}


def _engine_values(port: Any, image: np.ndarray) -> np.ndarray:
    if port.quantization is None:
        return image
    stored = np.round(image / port.quantization.scale) + port.quantization.zero_point
    return np.clip(stored, -128, 127).astype(np.int8)
