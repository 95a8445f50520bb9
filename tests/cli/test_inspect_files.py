"""``ipj-edge inspect`` on files that are no bundles."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.data


def report_of(ipj_edge_here, path, *options):
    ran = ipj_edge_here("inspect", path, "--json", "-", *options)
    assert ran.code == 0, ran
    return json.loads(ran.out)


def test_a_tflite_file_shows_scales_state_weights_and_macs(data_folder, ipj_edge_here):
    ran = ipj_edge_here("inspect", data_folder / "models/tflite/mnist_lstm_int8.tflite")
    assert ran.code == 0, ran
    assert "0.00392157 · -128" in ran.out
    # 28 steps of 4 · 20 · (28 + 20) products, then 560 · 10.
    assert f"{28 * 4 * 20 * (28 + 20) + 560 * 10:,} MACs" in ran.out
    assert "keeps between calls" in ran.out
    assert "UNIDIRECTIONAL_SEQUENCE_LSTM" in ran.out


def test_a_misnamed_file_is_told_by_its_weights(data_folder, ipj_edge_here):
    report = report_of(ipj_edge_here, data_folder / "models/mlperf_tiny/kws_ref_model_float32.tflite")
    assert report["weights"]["int8"] == 18944
    assert "whatever the file is called" in report["notes"][0]


def test_weights_listed_among_the_inputs_of_an_onnx_file_are_no_inputs(data_folder, ipj_edge_here):
    onnx = report_of(ipj_edge_here, data_folder / "models/onnx/mnist_cntk_opset8.onnx")
    assert onnx["kind"] == "onnx"
    assert onnx["macs"] > 0
    assert [each["shape"] for each in onnx["inputs"]] == [[1, 1, 28, 28]]
    assert onnx["computing"] == len(onnx["float_operators"])


def test_dynamic_sizes_of_an_onnx_file_are_named(data_folder, ipj_edge_here):
    report = report_of(ipj_edge_here, data_folder / "models/cifar10_resnet20/resnet20_cifar10_dyn.onnx")
    assert report["dynamic"] == ["input: batch"]
    assert report["macs"] == 40551040


def test_an_openvino_file_has_the_macs_of_its_source(data_folder, ipj_edge_here, tmp_path):
    source = data_folder / "models/onnx/FastestDet.onnx"
    ran = ipj_edge_here("convert", source, "--target", "openvino-cpu", "-o", tmp_path)
    assert ran.code == 0, ran
    (xml,) = tmp_path.rglob("*.xml")
    report = report_of(ipj_edge_here, xml)
    assert report["macs"] == report_of(ipj_edge_here, source)["macs"]
    assert report["inputs"][0]["name"] == "input.1"
    assert report["weights"]["float32"] > 200_000


def test_each_operator_is_listed_when_asked_for(data_folder, ipj_edge_here):
    path = data_folder / "models/tflite/hello_world_int8.tflite"
    assert ipj_edge_here("inspect", path).out.count("FULLY_CONNECTED") == 1
    assert ipj_edge_here("inspect", path, "--operators").out.count("FULLY_CONNECTED") == 3


@pytest.mark.parametrize("name", ["net.tflite", "net.onnx", "net.xml"])
@pytest.mark.parametrize("content", [None, b"", b"something else"])
def test_a_file_that_is_not_what_its_name_says_is_refused(ipj_edge_here, tmp_path, name, content):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    ran = ipj_edge_here("inspect", tmp_path / name)
    assert ran.code == 2, ran
    assert ran.err.startswith("ipj-edge: ")
    assert "Traceback" not in ran.err
