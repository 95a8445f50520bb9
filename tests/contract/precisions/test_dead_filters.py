"""int8 keeps the bias of a filter whose weights are nothing, or next to nothing, on every engine."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

import ipj_edge
from ipj_edge.errors import ParityError
from ipj_edge.values import TensorSpec

FILE = Path(__file__).with_name("dead_filters.py")
IMAGE = (TensorSpec(name="image", shape=(1, 3, 6, 7), dtype="float32"),)
NETWORKS = runpy.run_path(str(FILE))
ALL = ("zero", "millionth", "tiny", "several", "negative", "depthwise", "transposed", "linear", "last")


def error(conversion, network, images) -> float:
    """Return the largest error of the last output, as a share of the largest answer."""
    samples = np.load(images)["image"][:32]
    with torch.no_grad():
        wanted = NETWORKS[network]().eval()(torch.from_numpy(samples))
    wanted = (wanted[-1] if isinstance(wanted, tuple) else wanted).numpy()
    with ipj_edge.load(conversion.path, exits="all" if network == "exits" else "auto") as model:
        (found,) = model.run({"image": samples}).outputs.values()
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


@pytest.mark.parametrize("network", [*ALL, "all_dead", "shared"])
def test_tflite_keeps_the_bias_of_a_dead_filter(made, images, network):
    conversion = made(f"{FILE}:{network}", "tflite-cpu", "int8", inputs=IMAGE, calibration=str(images))
    assert error(conversion, network, images) < 0.04


@pytest.mark.parametrize("target", ["onnxruntime-cpu", "openvino-cpu"])
@pytest.mark.parametrize("network", ["zero", "tiny", "depthwise", "transposed", "linear"])
def test_the_other_engines_keep_it_too(made, images, target, network):
    conversion = made(f"{FILE}:{network}", target, "int8", inputs=IMAGE, calibration=str(images))
    assert error(conversion, network, images) < 0.04


@pytest.mark.parametrize("target", ["tflite-cpu", "onnxruntime-cpu", "openvino-cpu"])
def test_a_bias_that_drowns_all_other_filters_is_refused(made, images, target):
    """255 steps hold 1000 or the rest: no bundle can be right."""
    conversion = made(f"{FILE}:large", target, "int8", inputs=IMAGE, calibration=str(images))
    assert isinstance(conversion.error, ParityError)


def test_every_stage_of_a_model_with_exits_keeps_it(made, images):
    conversion = made(f"{FILE}:exits", "tflite-cpu", "int8", inputs=IMAGE, calibration=str(images))
    assert error(conversion, "exits", images) < 0.04


def test_dynamic_int8_keeps_it(made, images):
    conversion = made(f"{FILE}:linear", "tflite-cpu", scheme="dynamic", inputs=IMAGE, data=str(images))
    assert error(conversion, "linear", images) < 0.04
