"""Small torch sources, converted and run by the real converter and the real engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ipj_edge.bundles.bundle import record_files
from ipj_edge.bundles.manifest import (
    BatchSpec,
    Bundle,
    Manifest,
    ParityRecord,
    Requirements,
    SourceRecord,
    StageSpec,
)
from ipj_edge.protocols import ConversionTask, StageFiles
from ipj_edge.values import Port, Precision, Settings, TensorSpec
from ipj_edge_converters.tflite.convert import ToTflite
from ipj_edge_targets.tflite_cpu import TfliteCpu

Arrays = dict[str, np.ndarray]


class TorchSource:
    """A torch module as a source: what the sources package gives, without its files."""

    kind, name, file, sha256, precision, forms = "torch", "net", "net.py", "0" * 64, "fp32", ("torch",)

    def __init__(self, module: torch.nn.Module, inputs: tuple[TensorSpec, ...], output_names: tuple[str, ...]) -> None:
        self._module = module.eval()
        self.inputs = inputs
        self.versions: dict[str, str] = {}
        self.outputs = tuple(
            TensorSpec(name=name, shape=("batch", *array.shape[1:]), dtype=array.dtype.name)
            for name, array in zip(output_names, self._answers(self._zeros()), strict=True)
        )

    def torch_module(self) -> torch.nn.Module:
        return self._module

    def run(self, feeds: Arrays) -> Arrays:
        return {spec.name: array for spec, array in zip(self.outputs, self._answers(feeds), strict=True)}

    def _answers(self, feeds: Arrays) -> list[np.ndarray]:
        with torch.no_grad():
            answers = self._module(*(torch.from_numpy(feeds[spec.name]) for spec in self.inputs))
        return [answer.numpy() for answer in answers]

    def _zeros(self) -> Arrays:
        sizes = {spec.name: [size if isinstance(size, int) else 1 for size in spec.shape] for spec in self.inputs}
        return {spec.name: np.zeros(sizes[spec.name], dtype=spec.dtype) for spec in self.inputs}


class Net(torch.nn.Module):
    """A function of some layers and the inputs, returning a tuple."""

    def __init__(self, function: Callable[..., Any], *layers: torch.nn.Module) -> None:
        super().__init__()
        self.function, self.layers = function, torch.nn.ModuleList(layers)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*self.layers, *inputs)


def _net_source(
    function: Callable[..., Any],
    *layers: torch.nn.Module,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[str, ...] = ("y",),
) -> TorchSource:
    return TorchSource(Net(function, *layers), inputs, outputs)


def _spec(name: str, *sizes: int, dtype: str = "float32") -> TensorSpec:
    """Return the spec of an input with a dynamic batch axis in front."""
    return TensorSpec(name=name, shape=("batch", *sizes), dtype=dtype)


def _samples(source: TorchSource, count: int, seed: int = 1) -> Arrays:
    """Return seeded asymmetric samples for every input, first axis = samples."""
    random = np.random.default_rng(seed)
    arrays = {}
    for item in source.inputs:
        shape = [size for size in item.shape if isinstance(size, int)]
        shape = shape if item.batch_axis is None else [count, *shape]
        if item.dtype.startswith("int"):
            arrays[item.name] = random.integers(0, 50, shape).astype(item.dtype)
        else:
            arrays[item.name] = (random.standard_normal(shape) + 0.3).astype(item.dtype)
    return arrays


def stage_of(files: StageFiles, precision: Precision) -> StageSpec:
    return StageSpec(
        name="whole",
        file=files.file,
        takes=files.takes,
        adds=files.adds,
        exit_output=None,
        precision=precision,
        macs=None,
        macs_reason="not counted in this test",
        parameters=0,
        file_bytes=0,
        operators=files.operators,
    )


def bundle_of(folder: Path, source: Any, stage: StageSpec) -> Bundle:
    manifest = Manifest(
        schema_version=1,
        digest="0" * 64,
        name="net",
        target="tflite-cpu",
        precision=stage.precision,
        created_with={},
        source=SourceRecord(file="net.py", kind="torch", sha256="0" * 64),
        files=record_files(folder),
        inputs=source.inputs,
        outputs=source.outputs,
        stages=(stage,),
        batch=BatchSpec(static=1, probed=(1,), max=1),
        parity=ParityRecord(verified_on="target", tolerance=1e-4, seed=0, outputs=()),
        requires=Requirements(engine="ai-edge-litert", engine_version="2"),
        golden_samples=0,
    )
    return Bundle(path=folder, manifest=manifest)


def to_engine(port: Port, array: np.ndarray) -> np.ndarray:
    """Return real values as the engine's tensor: scale, round, clip."""
    if port.quantization is None:
        return array.astype(port.dtype)
    limits = np.iinfo(port.dtype)
    stored = np.round(array / port.quantization.scale) + port.quantization.zero_point
    return np.clip(stored, limits.min, limits.max).astype(port.dtype)


def from_engine(port: Port, array: np.ndarray) -> np.ndarray:
    if port.quantization is None:
        return array
    return (array.astype(np.float32) - port.quantization.zero_point) * np.float32(port.quantization.scale)


class Converted:
    """A converted source, opened on the target; runs samples one by one in the source's values."""

    def __init__(self, source: Any, folder: Path, precision: Precision, calibration: Arrays | None) -> None:
        self.source, self.folder = source, folder
        task = ConversionTask(
            source=source, target="tflite-cpu", precision=precision, calibration=calibration, into=folder
        )
        self.files = ToTflite().convert(task)
        self.bundle = bundle_of(folder, source, stage_of(self.files, precision))
        (self.session,) = TfliteCpu().open(self.bundle, Settings(threads=1))

    @property
    def data(self) -> bytes:
        return (self.folder / self.files.file).read_bytes()

    def run(self, arrays: Arrays) -> Arrays:
        """Return the outputs for all samples, first axis = samples."""
        batched = [item.name for item in self.source.inputs if item.batch_axis is not None]
        count = len(arrays[batched[0]])
        answers: dict[str, list[np.ndarray]] = {port.name: [] for port in self.files.adds}
        for row in range(count):
            feeds = {
                port.name: to_engine(
                    port, arrays[port.name][row : row + 1] if port.name in batched else arrays[port.name]
                )
                for port in self.files.takes
            }
            found = self.session.run(feeds)
            for port in self.files.adds:
                answers[port.name].append(from_engine(port, found[port.name]))
        return {name: np.concatenate(rows) for name, rows in answers.items()}

    def relative_l2(self, arrays: Arrays) -> dict[str, float]:
        """Return ‖converted − source‖₂ / ‖source‖₂ of every output."""
        wanted, found = self.source.run(arrays), self.run(arrays)
        return {
            name: float(np.linalg.norm(found[name] - wanted[name]) / np.linalg.norm(wanted[name])) for name in wanted
        }


@pytest.fixture
def converted(tmp_path: Path) -> Callable[..., Converted]:
    """Convert a source and open it: ``converted(source, "int8", calibration)``."""

    def make(source: Any, precision: Precision = "fp32", calibration: Arrays | None = None) -> Converted:
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        return Converted(source, folder, precision, calibration)

    return make


@pytest.fixture
def net_source() -> Callable[..., TorchSource]:
    """Make a source of a function and its layers: ``net_source(lambda line, x: (line(x),), line, inputs=…)``."""
    return _net_source


@pytest.fixture
def spec() -> Callable[..., TensorSpec]:
    """Describe an input with a dynamic batch axis: ``spec("image", 3, 5, 7)``."""
    return _spec


@pytest.fixture
def samples() -> Callable[..., Arrays]:
    """Draw seeded samples for a source: ``samples(source, 8)``."""
    return _samples
