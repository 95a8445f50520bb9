"""TFLite files cut into stages by an edit of the flatbuffer: the chain answers as the whole file does, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ai_edge_litert.interpreter import Interpreter
from torch import nn
from torch.nn import functional

from ipj_edge.errors import ConfigError, ConversionError, UnsupportedError
from ipj_edge.protocols import ConversionTask, StageFiles
from ipj_edge.values import Port, TensorSpec
from ipj_edge_converters.tflite import file as tflite_file
from ipj_edge_converters.tflite.convert import ToTflite
from ipj_edge_converters.tflite.cut import cut_tflite

EXITS = ("e1", "e2", "end")


def head(channels: int) -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(channels, 5))


class TwoScales(nn.Module):
    """Several tensors per cut, a skip that only the last stage reads, padding shared by a head and the trunk."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.wide2 = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)
        self.down, self.deep = nn.Conv2d(6, 4, 3, 2, 1), nn.Conv2d(10, 7, 3, padding=1)
        self.skip, self.early = nn.Conv2d(6, 7, 3, 2, 1), nn.Conv2d(6, 6, 3, 2, 1)
        self.h1, self.h2, self.h3 = head(6), head(10), head(7)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        fine = functional.relu(self.wide(x))
        coarse = functional.max_pool2d(fine, 2)
        fine2 = functional.relu(self.wide2(fine))
        coarse2 = torch.cat([functional.relu(self.down(fine2)), coarse], 1)
        last = functional.relu(self.deep(coarse2) + self.skip(fine))
        return self.h1(functional.relu(self.early(fine) + coarse)), self.h2(coarse2), self.h3(last)


class Rows(nn.Module):
    """Exits of a function of the samples; the output of the first is what the second starts from."""

    def __init__(self, between: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 6), nn.Linear(6, 6)
        self.h1, self.h2 = nn.Linear(6, 5), nn.Linear(6, 5)
        self.between = between

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = self.first(x)
        b = self.between(a)
        return self.h1(a - b), self.h2(self.second(a) - b)


class Source:
    """A torch module as a source of the TFLite converter."""

    kind, name, file, sha256, precision, forms = "torch", "net", "net.py", "0" * 64, "fp32", ("torch",)

    def __init__(self, module: nn.Module, shape: tuple[int | str, ...], exits: tuple[str, ...]) -> None:
        self._module = module.eval()
        self.versions: dict[str, str] = {}
        self.inputs = (TensorSpec(name="x", shape=shape, dtype="float32"),)
        self.outputs = tuple(TensorSpec(name=name, shape=(shape[0], 5), dtype="float32") for name in exits)

    def torch_module(self) -> nn.Module:
        return self._module


def converted(source: Source, folder: Path, precision: Any = "fp32") -> StageFiles:
    """Write ``model.tflite``; int8 is calibrated on seeded samples."""
    samples = samples_of(source, 32) if precision == "int8" else None
    task = ConversionTask(source=source, target="tflite-cpu", precision=precision, calibration=samples, into=folder)
    return ToTflite().convert(task)


def samples_of(source: Source, count: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(count)
    return {"x": (random.standard_normal((count, *source.inputs[0].shape[1:])) + 0.3).astype(np.float32)}


@pytest.fixture(scope="module", params=["fp32", "int8"])
def two_scales(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The network converted as a whole and cut: folder, the whole's files, stages."""
    torch.manual_seed(3)
    folder = tmp_path_factory.mktemp(str(request.param))
    files = converted(Source(TwoScales(), ("batch", 3, 8, 10), EXITS), folder, request.param)
    cuts = cut_tflite(folder / files.file, ("end", "e1", "e2"), files.takes, files.adds, 1, folder)
    return folder, files, cuts


class Opened:
    """A .tflite file in the engine, its tensors by pool name."""

    def __init__(self, path: Path, takes: tuple[Port, ...], adds: tuple[Port, ...]) -> None:
        self.interpreter = Interpreter(model_path=str(path), num_threads=1)
        self.interpreter.allocate_tensors()
        details = (*self.interpreter.get_input_details(), *self.interpreter.get_output_details())
        self._places = {detail["name"]: detail["index"] for detail in details}
        self._takes, self._adds = takes, adds

    def run(self, pool: dict[str, np.ndarray]) -> None:
        for port in self._takes:
            self.interpreter.set_tensor(self._places[port.engine_name], pool[port.name])
        self.interpreter.invoke()
        for port in self._adds:
            pool[port.name] = self.interpreter.get_tensor(self._places[port.engine_name])


def engine_samples(port: Port, count: int) -> np.ndarray:
    random = np.random.default_rng(count)
    if port.dtype == "int8":
        return random.integers(-128, 128, (count, *port.shape)).astype(np.int8)
    return random.standard_normal((count, *port.shape)).astype(np.float32)


def test_the_chain_equals_the_whole_bit_for_bit(two_scales: Any) -> None:
    folder, files, cuts = two_scales
    whole = Opened(folder / files.file, files.takes, files.adds)
    stages = [Opened(folder / each.file, each.takes, each.adds) for each in cuts]
    seen = set()
    for sample in engine_samples(files.takes[0], 50):
        expected, pool = {"x": sample}, {"x": sample}
        whole.run(expected)
        for stage in stages:
            stage.run(pool)
        for name in EXITS:
            np.testing.assert_array_equal(pool[name], expected[name])
            seen.add(expected[name].tobytes())
    assert len(seen) > 50


def test_several_tensors_cross_a_cut_and_one_skips_a_stage(two_scales: Any) -> None:
    _, _, (first, second, third) = two_scales
    assert [each.exit_output for each in (first, second, third)] == ["e1", "e2", "end"]
    assert [port.shape for port in first.adds] == [(1, 5), (1, 8, 10, 6), (1, 4, 5, 6)]
    assert [port.name for port in second.takes] == [port.name for port in first.adds[1:]]
    assert len(third.takes) == 2
    assert {port.name for port in third.takes} & {port.name for port in first.adds}


def test_padding_shared_by_a_head_and_the_trunk_is_not_handed_over(two_scales: Any) -> None:
    assert all(port.shape != (1, 10, 12, 6) for each in two_scales[2] for port in each.adds)


def test_both_sides_of_a_boundary_have_the_scale_of_the_whole_file(two_scales: Any) -> None:
    folder, files, cuts = two_scales
    graph = tflite_file.parse((folder / files.file).read_bytes()).subgraphs[0]
    whole = {tflite_file.text(tensor.name): tensor for tensor in graph.tensors}
    added = {port.name: port for each in cuts for port in each.adds}
    for port in (port for each in cuts[1:] for port in each.takes):
        assert port == added[port.name]
        assert (port.quantization is None) == (port.dtype == "float32")
        if port.quantization is not None:
            assert port.quantization.scale == float(whole[port.engine_name].quantization.scale[0])
            assert port.quantization.zero_point == int(whole[port.engine_name].quantization.zeroPoint[0])


def test_the_stages_have_the_operators_of_the_whole_and_no_more_than_a_shared_padding_twice(two_scales: Any) -> None:
    folder, files, cuts = two_scales

    def operators(path: Path) -> list[str]:
        model = tflite_file.parse(path.read_bytes())
        names = tflite_file.operator_names(model)
        return [names[operator.opcodeIndex] for operator in model.subgraphs[0].operators]

    whole = sorted(operators(folder / files.file))
    stages = sorted(name for each in cuts for name in operators(folder / each.file))
    assert [name for name in stages if name != "PAD"] == [name for name in whole if name != "PAD"]
    assert stages.count("PAD") <= whole.count("PAD") + 2


def test_a_stage_holds_its_own_weights_inline_and_no_others(two_scales: Any) -> None:
    folder, _, cuts = two_scales
    for each in cuts:
        model = tflite_file.parse((folder / each.file).read_bytes())
        assert all(buffer.offset <= 1 for buffer in model.buffers)
        used = {tensor.buffer for tensor in model.subgraphs[0].tensors} | {item.buffer for item in model.metadata}
        assert used | {0} == set(range(len(model.buffers)))
        assert {tflite_file.text(item.name) for item in model.metadata} == {"min_runtime_version"}
    weights = sum(module.numel() for module in TwoScales().parameters())
    assert sum(each.parameters for each in cuts) == weights


def test_work_adds_up_to_what_the_layers_say(two_scales: Any) -> None:
    first, second, third = two_scales[2]
    assert first.macs == 80 * 6 * 27 + 20 * 6 * 54 + 6 * 5
    assert second.macs == 80 * 6 * 54 + 20 * 4 * 54 + 10 * 5
    assert third.macs == 20 * 7 * 90 + 20 * 7 * 54 + 7 * 5


def test_the_signature_of_a_stage_speaks_the_names_of_the_pool(two_scales: Any) -> None:
    folder, files, cuts = two_scales
    interpreter = Interpreter(model_path=str(folder / cuts[0].file), num_threads=1)
    run = interpreter.get_signature_runner()
    answers = run(x=engine_samples(files.takes[0], 1)[0])
    assert set(answers) == {port.name for port in cuts[0].adds}


def test_the_same_cut_gives_the_same_bytes_and_leaves_the_whole_as_it_is(two_scales: Any, tmp_path: Path) -> None:
    folder, files, cuts = two_scales
    before = (folder / files.file).read_bytes()
    cut_tflite(folder / files.file, EXITS, files.takes, files.adds, 1, tmp_path)
    for each in cuts:
        assert (tmp_path / each.file).read_bytes() == (folder / each.file).read_bytes()
    assert (folder / files.file).read_bytes() == before


def test_refused_exits_are_named(two_scales: Any, tmp_path: Path) -> None:
    folder, files, _ = two_scales
    for exits, message in (
        (("end",), "at least two exits"),
        (("e1", "end"), "output 'e2' is no exit"),
        (("e1", "e7", "end"), "no output 'e7'"),
    ):
        with pytest.raises(ConfigError, match=message):
            cut_tflite(folder / files.file, exits, files.takes, files.adds, 1, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_exits_with_different_class_counts_are_refused(two_scales: Any, tmp_path: Path) -> None:
    folder, files, _ = two_scales
    taken = files.takes[0]
    adds = (*files.adds[:2], Port(name="end", engine_name=taken.engine_name, shape=taken.shape, dtype=taken.dtype))
    with pytest.raises(ConfigError, match="'e1' has shape"):
        cut_tflite(folder / files.file, EXITS, files.takes, adds, 1, tmp_path)


def test_ports_of_another_file_are_refused(two_scales: Any, tmp_path: Path) -> None:
    folder, files, _ = two_scales
    other = Port(name="x", engine_name="elsewhere", shape=(1, 3, 8, 10), dtype="float32")
    with pytest.raises(ConversionError, match="no input or output 'elsewhere'"):
        cut_tflite(folder / files.file, EXITS, (other,), files.adds, 1, tmp_path)


def test_a_mean_over_the_batch_cannot_cross_a_cut(tmp_path: Path) -> None:
    source = Source(Rows(lambda a: a.mean(0)), (2, 8), ("e1", "end"))
    files = converted(source, tmp_path)
    with pytest.raises(UnsupportedError, match=r"'end' would take the tensor '.*' of shape \[6\].*no batch axis"):
        cut_tflite(tmp_path / files.file, ("e1", "end"), files.takes, files.adds, 2, tmp_path)


def test_a_fixed_batch_is_cut_and_its_work_counted_for_one_sample(tmp_path: Path) -> None:
    source = Source(Rows(torch.tanh), (4, 8), ("e1", "end"))
    files = converted(source, tmp_path)
    first, last = cut_tflite(tmp_path / files.file, ("e1", "end"), files.takes, files.adds, 4, tmp_path)
    assert (first.macs, last.macs) == (8 * 6 + 6 * 5, 6 * 6 + 6 * 5)
    assert all(port.shape == (4, 6) for port in last.takes)


def edited(two_scales: Any, into: Path, edit: Callable[[Any], None]) -> Path:
    folder, files, _ = two_scales
    model = tflite_file.parse((folder / files.file).read_bytes())
    edit(model)
    (into / "edited.tflite").write_bytes(tflite_file.pack(model))
    return into / "edited.tflite"


def test_a_model_that_keeps_a_state_is_refused(two_scales: Any, tmp_path: Path) -> None:
    def keep(model: Any) -> None:
        graph = model.subgraphs[0]
        graph.tensors[graph.operators[1].inputs[1]].isVariable = True

    path = edited(two_scales, tmp_path, keep)
    with pytest.raises(UnsupportedError, match="keeps a state cannot exit early"):
        cut_tflite(path, EXITS, two_scales[1].takes, two_scales[1].adds, 1, tmp_path)


def test_a_file_with_control_flow_is_refused(two_scales: Any, tmp_path: Path) -> None:
    def call(model: Any) -> None:
        model.subgraphs.append(model.subgraphs[0])
        code = tflite_file.schema().OperatorCodeT()
        code.builtinCode = code.deprecatedBuiltinCode = tflite_file.schema().BuiltinOperator.WHILE
        model.operatorCodes.append(code)

    path = edited(two_scales, tmp_path, call)
    with pytest.raises(UnsupportedError, match=r"run other graphs \(WHILE\)"):
        cut_tflite(path, EXITS, two_scales[1].takes, two_scales[1].adds, 1, tmp_path)


def test_tensors_of_the_same_name_get_names_of_their_own_in_the_pool(two_scales: Any, tmp_path: Path) -> None:
    folder, files, cuts = two_scales
    crossing = {port.engine_name for port in cuts[0].adds[1:]}

    def rename(model: Any) -> None:
        for tensor in model.subgraphs[0].tensors:
            if tflite_file.text(tensor.name) in crossing:
                tensor.name = b"same"

    path = edited(two_scales, tmp_path, rename)
    again = cut_tflite(path, EXITS, files.takes, files.adds, 1, tmp_path)
    names = [port.name for port in again[0].adds]
    assert len(set(names)) == len(names)
    whole = Opened(folder / files.file, files.takes, files.adds)
    stages = [Opened(tmp_path / each.file, each.takes, each.adds) for each in again]
    sample = engine_samples(files.takes[0], 1)[0]
    expected, pool = {"x": sample}, {"x": sample}
    whole.run(expected)
    for stage in stages:
        stage.run(pool)
    np.testing.assert_array_equal(pool["end"], expected["end"])
