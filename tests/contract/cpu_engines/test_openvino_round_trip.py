"""Small real networks through the converter and the target, against onnxruntime on the ONNX file."""

from __future__ import annotations

import numpy as np
import pytest

from ipj_edge.values import Settings
from ipj_edge_targets.openvino_cpu import OpenvinoCpu


def answers(bundle, feeds, **settings):
    (session,) = OpenvinoCpu().open(bundle, Settings(**settings))
    outputs = {name: value.copy() for name, value in session.run(feeds).items()}
    session.close()
    return outputs


def relative_l2(got, wanted):
    return float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("batch", [1, 2, 32])
def test_fp32_answers_as_the_onnx_file_does(any_source, convert, tmp_path, batch):
    bundle = convert(any_source, tmp_path / "fp32")
    feeds = any_source.feeds(batch)
    wanted = any_source.run(feeds)
    got = answers(bundle, feeds, threads=1)
    assert sorted(got) == sorted(wanted)
    for name, value in wanted.items():
        assert got[name].shape == value.shape
        assert got[name].dtype == value.dtype
        assert relative_l2(got[name], value) <= 1e-4


@pytest.mark.parametrize("batch", [1, 32])
def test_int8_stays_close_to_the_onnx_file(any_source, convert, tmp_path, batch):
    bundle = convert(any_source, tmp_path / "int8", "int8", any_source.calibration())
    feeds = any_source.feeds(batch, seed=99)
    wanted = any_source.run(feeds)
    got = answers(bundle, feeds, threads=1)
    for name, value in wanted.items():
        assert 0 < relative_l2(got[name], value) <= 0.15
