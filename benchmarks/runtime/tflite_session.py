"""What a session of `tflite-cpu` costs over the bare engine, and what a conversion costs.

Run: ``python -m benchmarks.runtime.tflite_session``. Bare calls and session calls alternate in one run, so that a busy
machine slows both; read the ratio and the difference, not the microseconds.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np

from ipj_edge.bundles.manifest import StageSpec
from ipj_edge.bundles.sealed_files import SealedFile
from ipj_edge.protocols import ConversionTask, StageFiles
from ipj_edge.values import Precision, TensorSpec
from ipj_edge_converters.tflite.convert import ToTflite
from ipj_edge_targets.tflite_cpu import TfliteSession
from ipj_edge_targets.tflite_engine import find_engine, installed_versions

ROUNDS, CALLS = 40, 200


def peak_mb() -> float:
    """Return the largest resident size of this process so far, in MB (Linux counts kilobytes)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def step(label: str, work: Callable[[], Any]) -> Any:
    """Run a step and print its seconds and the peak memory after it."""
    start = time.perf_counter()
    result = work()
    print(f"{label:<34}{time.perf_counter() - start:8.2f} s{peak_mb():10.0f} MB peak")
    return result


def tiny_source() -> Any:
    """Return a net of the size of a sensor classifier: one convolution and one linear layer on 8x8 pixels."""
    import torch

    torch.manual_seed(0)
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(512, 10)
    )

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = layers

        def forward(self, image: torch.Tensor) -> tuple[torch.Tensor]:
            return (self.layers(image),)

    return SimpleNamespace(
        inputs=(TensorSpec(name="image", shape=("batch", 1, 8, 8), dtype="float32"),),
        outputs=(TensorSpec(name="logits", shape=("batch", 10), dtype="float32"),),
        torch_module=lambda: Net().eval(),
    )


def convert(source: Any, precision: Precision, folder: Path) -> StageFiles:
    into = folder / precision
    into.mkdir()
    data = {"image": np.random.default_rng(1).standard_normal((200, 1, 8, 8)).astype(np.float32)}
    calibration = data if precision == "int8" else None
    return ToTflite().convert(
        ConversionTask(source=source, target="tflite-cpu", precision=precision, calibration=calibration, into=into)
    )


def open_session(files: StageFiles, precision: Precision, folder: Path) -> TfliteSession:
    stage = StageSpec(
        name="whole",
        file=files.file,
        takes=files.takes,
        adds=files.adds,
        exit_output=None,
        precision=precision,
        macs=None,
        parameters=0,
        file_bytes=0,
        operators=files.operators,
    )
    engine = find_engine(installed_versions())
    assert engine is not None, "no engine is installed: pip install 'ipj-edge[tflite-cpu]'"
    file = folder / precision / files.file
    copy = SealedFile(file.name, file.stat().st_size)
    with file.open("rb") as stream:
        copy.take(stream.fileno())
    return TfliteSession(copy, stage, engine=engine, threads=1)


def bare_call(path: Path, feed: np.ndarray) -> Callable[[], Any]:
    """Return the engine's own fastest safe call with this input: methods bound, nothing looked up."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(path), num_threads=1)
    interpreter.allocate_tensors()
    source, target = interpreter.get_input_details()[0]["index"], interpreter.get_output_details()[0]["index"]
    put, invoke, get = interpreter.set_tensor, interpreter.invoke, interpreter.get_tensor

    def call() -> Any:
        put(source, feed)
        invoke()
        return get(target)

    return call


def seconds_of(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - start) / CALLS


def compare(files: StageFiles, precision: Precision, folder: Path) -> None:
    (port,) = files.takes
    feed = np.random.default_rng(2).integers(-100, 100, port.shape).astype(port.dtype)
    bare = bare_call(folder / precision / files.file, feed)
    session, feeds = open_session(files, precision, folder), {port.name: feed}
    pairs = [(seconds_of(bare), seconds_of(lambda: session.run(feeds))) for _ in range(ROUNDS)][ROUNDS // 4 :]
    bare_us, session_us = (1e6 * median(side) for side in zip(*pairs, strict=True))
    print(
        f"{precision}: bare {bare_us:.2f} us, Session.run {session_us:.2f} us, "
        f"difference {session_us - bare_us:.2f} us, ratio {session_us / bare_us:.3f}"
    )


def main() -> None:
    step("import torch", lambda: import_module("torch"))
    source = tiny_source()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fp32 = step("import litert-torch, convert fp32", lambda: convert(source, "fp32", folder))
        int8 = step("import quantizer, convert int8", lambda: convert(source, "int8", folder))
        compare(fp32, "fp32", folder)
        compare(int8, "int8", folder)


if __name__ == "__main__":
    main()
