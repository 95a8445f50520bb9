"""What ``Model.run`` adds to the engine's own fastest call, on the digits bundles (``make demo`` makes them).

Both run the same input in alternating rounds of one process; the figure is the difference of the two medians.
Goal: at most 15 µs. The int8 adaptation of larger inputs is timed apart, on arrays of growing size.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns

import numpy as np

import ipj_edge
from ipj_edge.plugins import needs
from ipj_edge.runtime.adaptation import quantizer
from ipj_edge.values import Port, Quantization

ROUNDS, CALLS = 40, 250


def bare_call(bundle: Path, image: np.ndarray) -> Callable[[], object]:
    """Return the engine's fastest call known to us, on this input, at one thread: no check, no copy of the outputs."""
    if "openvino" in bundle.name:
        return _openvino(bundle / "model.xml", image)
    if "onnxruntime" in bundle.name:
        return _onnxruntime(bundle / "model.onnx", image)
    return _tflite(bundle / "model.tflite", image)


def _openvino(file: Path, image: np.ndarray) -> Callable[[], object]:
    with needs("openvino-cpu"):
        import openvino

    core = openvino.Core()
    model = core.read_model(file)
    model.reshape(list(image.shape))
    config = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, "PERFORMANCE_HINT": "LATENCY"}
    request = core.compile_model(model, "CPU", config).create_infer_request()
    inside, output = request.get_input_tensor().data, request.get_output_tensor()

    def call() -> object:
        inside[...] = image
        request.infer()
        return output.data

    return call


def _onnxruntime(file: Path, image: np.ndarray) -> Callable[[], object]:
    with needs("onnxruntime-cpu"):
        import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    names, feeds = [output.name for output in session.get_outputs()], {session.get_inputs()[0].name: image}
    return lambda: session.run(names, feeds)


def _tflite(file: Path, image: np.ndarray) -> Callable[[], object]:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(file), num_threads=1)
    interpreter.allocate_tensors()
    source, sink = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    if source["dtype"] == np.int8:
        scale, zero = source["quantization"]
        image = np.clip(np.rint(image / scale) + zero, -128, 127).astype(np.int8)
    put, go, get, into, out = (
        interpreter.set_tensor,
        interpreter.invoke,
        interpreter.get_tensor,
        source["index"],
        sink["index"],
    )

    def call() -> object:
        put(into, image)
        go()
        return get(out)

    return call


def alternate(first: Callable[[], object], second: Callable[[], object]) -> tuple[float, float]:
    """Return the median microseconds of two calls, timed one by one in alternating rounds."""
    times: tuple[list[int], list[int]] = ([], [])
    for _ in range(ROUNDS):
        for call, spent in zip((first, second), times, strict=True):
            call()
            for _ in range(CALLS):
                start = perf_counter_ns()
                call()
                spent.append(perf_counter_ns() - start)
    return float(np.median(times[0])) / 1e3, float(np.median(times[1])) / 1e3


def main(folder: Path) -> None:
    """Print the table."""
    image = np.random.default_rng(0).random((1, 1, 8, 8), np.float32)
    print(f"{'bundle':<36}{'engine µs':>10}{'run µs':>10}{'added µs':>10}")
    for bundle in sorted(folder.glob("*.ipj")):
        bare = bare_call(bundle, image)
        with ipj_edge.load(bundle, threads=1) as model:
            engine_us, run_us = alternate(bare, lambda model=model: model.run(image))
        print(f"{bundle.name:<36}{engine_us:>10.1f}{run_us:>10.1f}{run_us - engine_us:>10.1f}")
    quantize = quantizer(
        Port(
            name="x", engine_name="x", shape=(), dtype="int8", quantization=Quantization(scale=1 / 255, zero_point=-128)
        )
    )
    print("\nint8 adaptation of an input, apart:")
    for side in (8, 32, 96, 224):
        values = np.random.default_rng(0).random((1, 3, side, side), np.float32)
        spent_us, _ = alternate(lambda values=values: quantize(values), lambda: None)
        print(f"  3×{side}×{side}: {spent_us:.1f} µs")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo/dist"))
