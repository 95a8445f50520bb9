"""What the converter writes, and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ipj_edge.errors import ConfigError, ConversionError, TargetUnavailableError, UnsupportedError
from ipj_edge.protocols import ConversionTask
from ipj_edge.values import ConversionOptions
from ipj_edge_converters.openvino.convert import ToOpenvino
from ipj_edge_converters.openvino.file import XML_NAME

HERE = Path(__file__).parent


def task(source, into, precision="fp32", calibration=None, isa=""):
    into.mkdir(exist_ok=True)
    return ConversionTask(
        source=source,
        target="openvino-cpu",
        precision=precision,
        calibration=calibration,
        into=into,
        options=ConversionOptions(isa=isa),
    )


def test_only_the_two_ir_files_are_written(conv_source, tmp_path):
    made = ToOpenvino().convert(task(conv_source, tmp_path / "out"))
    assert made.file == XML_NAME
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["model.bin", XML_NAME]
    assert set(made.versions) == {"openvino"}


def test_ports_carry_the_sources_names_and_the_named_batch(any_source, tmp_path):
    made = ToOpenvino().convert(task(any_source, tmp_path / "out"))
    assert [(port.name, port.engine_name, port.shape, port.dtype) for port in made.takes] == [
        (spec.name, spec.name, spec.shape, spec.dtype) for spec in any_source.inputs
    ]
    assert [(port.name, port.shape) for port in made.adds] == [(spec.name, spec.shape) for spec in any_source.outputs]
    assert made.static_batch is None
    assert made.isa == ""


def test_a_fixed_batch_is_reported(graph, tensor_spec, tmp_path):
    g = graph()
    g.node("Relu", ["x"], "y")
    source = g.save(tmp_path / "fixed.onnx", (tensor_spec("x", (4, 3)),), (tensor_spec("y", (4, 3)),))
    made = ToOpenvino().convert(task(source, tmp_path / "out"))
    assert made.static_batch == 4
    assert made.takes[0].shape == (4, 3)


def test_weights_stay_float32(conv_source, tmp_path):
    ToOpenvino().convert(task(conv_source, tmp_path / "out"))
    assert "FP16" not in (tmp_path / "out" / XML_NAME).read_text()


def test_no_file_carries_a_path_or_the_conversions_arguments(conv_source, tmp_path):
    ToOpenvino().convert(task(conv_source, tmp_path / "fp32"))
    ToOpenvino().convert(task(conv_source, tmp_path / "int8", "int8", conv_source.calibration()))
    for precision in ("fp32", "int8"):
        for name in (XML_NAME, "model.bin"):
            content = (tmp_path / precision / name).read_bytes()
            assert str(tmp_path).encode() not in content
            assert b".onnx" not in content
            assert b"conversion_parameters" not in content
            assert b"/home" not in content
            assert b"/tmp" not in content


def test_names_of_the_source_survive_and_counters_do_not(conv_source, tmp_path):
    ToOpenvino().convert(task(conv_source, tmp_path / "out"))
    xml = (tmp_path / "out" / XML_NAME).read_text()
    assert 'name="c2_node/WithoutBiases"' in xml
    assert 'name="Const_0"' in xml


def test_a_second_conversion_in_the_same_process_gives_the_same_bytes(any_source, tmp_path):
    for precision, calibration in (("fp32", None), ("int8", any_source.calibration(16))):
        for turn in ("first", "second"):
            ToOpenvino().convert(task(any_source, tmp_path / (precision + turn), precision, calibration))
        for name in (XML_NAME, "model.bin"):
            first = (tmp_path / f"{precision}first" / name).read_bytes()
            assert first == (tmp_path / f"{precision}second" / name).read_bytes()


CONVERT_IN_A_CHILD = """
import sys, json
from pathlib import Path
sys.path.insert(0, {here!r})
import conftest
from ipj_edge_converters.openvino.convert import ToOpenvino
folder = Path(sys.argv[1])
(folder / "models").mkdir(parents=True)
for name, build in conftest.NETS.items():
    source = build(folder / "models")
    conftest.convert_to_bundle(source, folder / name / "fp32")
    conftest.convert_to_bundle(source, folder / name / "int8", "int8", source.calibration(16))
imported = [name for name in sys.modules if name.startswith("openvino_telemetry")]
import logging
root = logging.getLogger()
logs = [logging.getLoggerClass().__name__, root.level, len(root.handlers), len(root.filters)]
print(json.dumps({{"imported": imported, "logs": logs}}))
"""


def convert_in_a_child(folder, home, seed):
    home.mkdir(exist_ok=True)
    environment = {**os.environ, "HOME": str(home), "PYTHONHASHSEED": seed}
    environment.pop("PYTHONPATH", None)
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", CONVERT_IN_A_CHILD.format(here=str(HERE)), str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )


@pytest.mark.slow
def test_two_fresh_processes_give_the_same_bytes_and_keep_quiet(tmp_path, nets):
    home = tmp_path / "home"
    runs = [convert_in_a_child(tmp_path / turn, home, seed) for turn, seed in (("first", "1"), ("second", "2"))]
    for net in nets:
        for precision in ("fp32", "int8"):
            for name in (XML_NAME, "model.bin"):
                each = Path(net, precision, name)
                first = (tmp_path / "first" / each).read_bytes()
                assert first == (tmp_path / "second" / each).read_bytes(), each
    for run in runs:
        # One line, ours: no log, no progress bar; no telemetry loaded, nothing left in the user's home.
        assert json.loads(run.stdout) == {"imported": [], "logs": ["Logger", 30, 0, 0]}
        assert run.stderr == ""
    assert list(home.iterdir()) == []


def test_other_calibration_gives_another_file(conv_source, tmp_path):
    calibration = conv_source.calibration(16)
    ToOpenvino().convert(task(conv_source, tmp_path / "a", "int8", calibration))
    wider = {name: 3 * values for name, values in calibration.items()}
    ToOpenvino().convert(task(conv_source, tmp_path / "b", "int8", wider))
    assert (tmp_path / "a" / "model.bin").read_bytes() != (tmp_path / "b" / "model.bin").read_bytes()


def test_every_sample_counts_and_the_range_is_the_true_one(graph, tensor_spec, tmp_path):
    """One outlier in the last sample: an average or a percentile of the ranges would clip it to a fraction."""
    g = graph()
    g.node("MatMul", ["x", g.weight("w", (8, 8), 0.3)], "y")
    source = g.save(tmp_path / "m.onnx", (tensor_spec("x", ("batch", 8)),), (tensor_spec("y", ("batch", 8)),))
    values = np.random.default_rng(5).uniform(-1, 1, (400, 8)).astype(np.float32)
    values[-1, 3] = 50.0
    ToOpenvino().convert(task(source, tmp_path / "out", "int8", {"x": values}))
    low, high = input_range(tmp_path / "out" / XML_NAME)
    assert high == pytest.approx(50.0, rel=0.02)
    assert low == pytest.approx(float(values.min()), abs=0.2)  # one step of the grid


def input_range(xml):
    from ipj_edge_converters.openvino.file import import_openvino

    model = import_openvino().Core().read_model(xml)
    quantizers = [each for each in model.get_ops() if each.get_type_name() == "FakeQuantize"]
    (quantize,) = [each for each in quantizers if each.get_friendly_name() == "x/fq_output_0"]
    return [float(quantize.input_value(index).get_node().data.min()) for index in (1, 2)]


def test_int8_names_the_operators_that_stayed_float(graph, tensor_spec, tmp_path):
    g = graph()
    g.node("MatMul", ["x", g.weight("w", (8, 8), 0.3)], "m")
    g.node("Softmax", ["m"], "y", axis=-1)
    source = g.save(tmp_path / "m.onnx", (tensor_spec("x", ("batch", 8)),), (tensor_spec("y", ("batch", 8)),))
    made = ToOpenvino().convert(task(source, tmp_path / "out", "int8", source.calibration()))
    assert made.operators.total == 2
    assert made.operators.float_operators == ("y",)
    assert set(made.versions) == {"openvino", "nncf"}


def test_int8_counts_a_bias_and_an_activation_with_their_convolution(conv_source, tmp_path):
    made = ToOpenvino().convert(task(conv_source, tmp_path / "out", "int8", conv_source.calibration()))
    # conv, bias, relu, depthwise, bias, relu, pooling, product, bias
    assert made.operators.total == 9
    assert made.operators.float_operators == ()


def test_in_fp32_every_operator_is_a_float_one(conv_source, tmp_path):
    made = ToOpenvino().convert(task(conv_source, tmp_path / "out"))
    assert len(made.operators.float_operators) == made.operators.total == 9


def test_int8_that_quantizes_nothing_is_an_error(graph, tensor_spec, tmp_path):
    g = graph()
    g.node("Softmax", ["x"], "y", axis=-1)
    source = g.save(tmp_path / "s.onnx", (tensor_spec("x", ("batch", 8)),), (tensor_spec("y", ("batch", 8)),))
    with pytest.raises(ConversionError, match="all 1 operators of the file compute in floating point"):
        ToOpenvino().convert(task(source, tmp_path / "out", "int8", source.calibration()))


def test_int8_without_calibration_is_an_error(conv_source, tmp_path):
    with pytest.raises(ConversionError, match="needs calibration"):
        ToOpenvino().convert(task(conv_source, tmp_path / "out", "int8"))


def test_weights_use_seven_bits_where_vnni_is_not_assumed(conv_source, tmp_path):
    calibration = conv_source.calibration()
    widest = {}
    for isa in ("", "vnni", "avx2"):
        made = ToOpenvino().convert(task(conv_source, tmp_path / f"o{isa}", "int8", calibration, isa))
        assert made.isa == ("" if isa == "avx2" else "vnni")
        widest[isa] = widest_weight(tmp_path / f"o{isa}" / XML_NAME)
    assert widest[""] == widest["vnni"] == 127
    assert widest["avx2"] <= 64


def widest_weight(xml):
    from ipj_edge_converters.openvino.file import import_openvino

    model = import_openvino().Core().read_model(xml)
    constants = [each.data for each in model.get_ops() if each.get_type_name() == "Constant"]
    weights = [each for each in constants if each.dtype == "int8" and each.ndim != 5]  # 5: depthwise, see quantize
    assert weights
    return max(int(np.abs(each.astype(np.int32)).max()) for each in weights)


@pytest.mark.parametrize(
    ("kind", "domain"), [("Det", ""), ("NoisyRelu", "MyDomain")], ids=["standard operator", "custom operator"]
)
def test_an_operator_openvino_lacks_is_named(graph, tensor_spec, tmp_path, kind, domain):
    from onnx import TensorProto, helper, save

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3, 3))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    made = helper.make_graph([helper.make_node(kind, ["x"], ["y"], domain=domain)], "g", [x], [y])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("MyDomain", 1)]
    save(helper.make_model(made, opset_imports=opsets, ir_version=8), tmp_path / "odd.onnx")

    class Odd:
        name, file, precision = "odd", "odd.onnx", "fp32"
        inputs, outputs = (tensor_spec("x", (2, 3, 3)),), (tensor_spec("y", (2,)),)

        def onnx_path(self):
            return tmp_path / "odd.onnx"

    with pytest.raises(UnsupportedError, match=kind) as caught:
        ToOpenvino().convert(task(Odd(), tmp_path / "out"))
    assert caught.value.operators == (f"{domain}.{kind}" if domain else kind,)
    assert caught.value.exit_code == 3
    assert "\n" not in str(caught.value)


@pytest.mark.data
def test_an_operator_used_in_an_odd_way_is_named_with_the_reason(data_folder, onnx_source, tensor_spec, tmp_path):
    inputs = (
        tensor_spec("input", ("batch", 576)),
        tensor_spec("state", (2, "batch", 128), batch_axis=1),
        tensor_spec("sr", (), "int64", batch_axis=None),
    )
    source = onnx_source(data_folder / "models/onnx/silero_vad_16k_op15.onnx", inputs, ())
    with pytest.raises(UnsupportedError, match=r"Conv, ReduceMean as this model uses it \(.*rank.*\)") as caught:
        ToOpenvino().convert(task(source, tmp_path / "out"))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_model_is_a_conversion_error(conv_source, tmp_path):
    conv_source.onnx_path().write_bytes(b"not a model")
    with pytest.raises(ConversionError) as caught:
        ToOpenvino().convert(task(conv_source, tmp_path / "out"))
    assert "\n" not in str(caught.value)


def test_calibration_reaches_a_batch_axis_that_is_not_the_first(graph, tensor_spec, tmp_path, convert):
    g = graph()
    g.node("MatMul", ["steps", g.weight("w", (16, 4), 0.3)], "y")
    inputs = (tensor_spec("steps", (7, "batch", 16), batch_axis=1),)
    source = g.save(tmp_path / "steps.onnx", inputs, (tensor_spec("y", (7, "batch", 4), batch_axis=1),))
    values = np.random.default_rng(0).standard_normal((20, 7, 16)).astype(np.float32)
    made = ToOpenvino().convert(task(source, tmp_path / "out", "int8", {"steps": values}))
    assert made.operators.float_operators == ()
    assert made.takes[0].shape == (7, "batch", 16)


def test_calibration_fills_a_fixed_batch_and_uses_every_sample(graph, tensor_spec, tmp_path):
    g = graph()
    g.node("MatMul", ["x", g.weight("w", (8, 8), 0.3)], "y")
    source = g.save(tmp_path / "four.onnx", (tensor_spec("x", (4, 8)),), (tensor_spec("y", (4, 8)),))
    values = np.random.default_rng(5).uniform(-1, 1, (6, 8)).astype(np.float32)  # not a multiple of four
    values[-1, 3] = 50.0
    made = ToOpenvino().convert(task(source, tmp_path / "out", "int8", {"x": values}))
    assert made.static_batch == 4
    assert input_range(tmp_path / "out" / XML_NAME)[1] == pytest.approx(50.0, rel=0.02)


def test_attention_is_recognised_and_stays_close_in_int8(graph, tensor_spec, tmp_path, convert):
    from ipj_edge.values import Settings
    from ipj_edge_converters.openvino.file import import_openvino
    from ipj_edge_converters.openvino.quantize import has_attention
    from ipj_edge_targets.openvino_cpu import OpenvinoCpu

    g = graph()
    for name in ("q", "k", "v"):
        g.node("MatMul", ["x", g.weight(f"w{name}", (16, 16), 0.3)], name)
    g.node("Transpose", ["k"], "kt", perm=[0, 2, 1])
    g.node("MatMul", ["q", "kt"], "scores")
    g.node("Softmax", ["scores"], "weights", axis=-1)
    g.node("MatMul", ["weights", "v"], "y")
    source = g.save(
        tmp_path / "attention.onnx", (tensor_spec("x", ("batch", 6, 16)),), (tensor_spec("y", ("batch", 6, 16)),)
    )
    bundle = convert(source, tmp_path / "out", "int8", source.calibration())
    assert has_attention(import_openvino().Core().read_model(source.onnx_path()))
    (session,) = OpenvinoCpu().open(bundle, Settings(threads=1))
    feeds = source.feeds(3, seed=77)
    wanted = source.run(feeds)["y"]
    assert np.linalg.norm(session.run(feeds)["y"] - wanted) / np.linalg.norm(wanted) <= 0.15


def test_a_quantized_source_keeps_its_own_scales(conv_source, tmp_path, quantized, convert):
    from ipj_edge.values import Settings
    from ipj_edge_targets.openvino_cpu import OpenvinoCpu

    source = quantized(conv_source)
    bundle = convert(source, tmp_path / "out", "int8")
    (stage,) = bundle.manifest.stages
    assert stage.operators.total > len(stage.operators.float_operators)
    feeds = source.feeds(4)
    (session,) = OpenvinoCpu().open(bundle, Settings(threads=1))
    wanted = source.run(feeds)["logits"]
    # Equal scales: what remains is rounding of the same integers, far below the quantization error itself.
    assert np.linalg.norm(session.run(feeds)["logits"] - wanted) / np.linalg.norm(wanted) < 0.02
    session.close()


def test_a_quantized_source_cannot_become_fp32(conv_source, tmp_path, quantized):
    source = quantized(conv_source)
    with pytest.raises(TargetUnavailableError, match="already quantized") as caught:
        ToOpenvino().convert(task(source, tmp_path / "out"))
    assert caught.value.exit_code == 6


@pytest.mark.parametrize(("largest", "zero_point", "assumes"), [(127, 0, "vnni"), (64, -128, "")])
def test_a_quantized_source_assumes_vnni_where_its_weights_use_eight_bits(
    graph, tensor_spec, tmp_path, largest, zero_point, assumes
):
    g = graph()
    scale, zero = g.constant("scale", np.float32(0.02)), g.constant("zero", np.int8(zero_point))
    g.node("QuantizeLinear", ["x", scale, zero], "q")
    g.node("DequantizeLinear", ["q", scale, zero], "dq")
    weights = np.linspace(-largest, largest, 24).reshape(6, 4).astype(np.int8)
    g.node("DequantizeLinear", [g.constant("w8", weights), g.constant("ws", np.float32(0.01))], "w")
    g.node("MatMul", ["dq", "w"], "y")
    source = g.save(
        tmp_path / "qdq.onnx", (tensor_spec("x", ("batch", 6)),), (tensor_spec("y", ("batch", 4)),), precision="int8"
    )
    assert ToOpenvino().convert(task(source, tmp_path / "o", "int8")).isa == assumes
    if assumes:
        with pytest.raises(TargetUnavailableError, match="not exact on avx2"):
            ToOpenvino().convert(task(source, tmp_path / "p", "int8", isa="avx2"))


def test_an_instruction_set_nobody_knows_is_refused(conv_source, tmp_path):
    with pytest.raises(ConfigError, match="unknown instruction set 'banana'"):
        ToOpenvino().convert(task(conv_source, tmp_path / "o", "int8", conv_source.calibration(), "banana"))
