"""What a chain of stages costs over the whole graph, per boundary, at batch 1, when no sample leaves early.

    python -m benchmarks.runtime.stage_chain [../shared/data]

Each engine runs the whole file and its stages in turns, one thread. Shown is the fifth percentile over all turns,
which a busy machine disturbs least. ``copied`` hands arrays over as `Session.run` does; ``linked`` has the engine
write where the next stage reads:

* onnxruntime: one ``OrtValue`` bound as output of one stage and as input of the next;
* openvino: ``next.set_input_tensor(i, previous.get_output_tensor(j))``, once;
* TFLite: a view of the output tensor given to ``set_tensor``, which copies once instead of twice.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
from ai_edge_litert.interpreter import Interpreter
from benchmarks.exits import resnet20_exits
from benchmarks.shared import public_data

from ipj_edge.protocols import StageCut
from ipj_edge.values import Port
from ipj_edge_converters.onnx.cut import cut_onnx
from ipj_edge_converters.onnx.files import save_onnx
from ipj_edge_converters.onnx.quantize.static import Choices, quantize
from ipj_edge_converters.openvino.cut import cut_openvino
from ipj_edge_converters.openvino.file import import_openvino
from ipj_edge_converters.openvino.onnx_reading import read_onnx
from ipj_edge_converters.tflite.cut import cut_tflite

GOALS_US = {"tflite": 2, "onnxruntime": 15, "openvino": 25}
Pool = dict[str, Any]


class Rivals(NamedTuple):
    """Calls that run one inference each: the whole file, and its stages."""

    whole: Callable[[], object]
    copied: Callable[[], object]
    linked: Callable[[], object]


def onnxruntime_rivals(whole: Path, folder: Path, cuts: Sequence[StageCut], image: np.ndarray) -> Rivals:
    whole_session, sessions = _session(whole), [_session(folder / cut.file) for cut in cuts]
    pool: Pool = {"input": onnxruntime.OrtValue.ortvalue_from_numpy(image)}
    bound = [_bound(session, pool) for session in sessions]
    whole_bound = _bound(whole_session, {"input": pool["input"]})

    def copied() -> None:
        arrays = {"input": image}
        for cut, session in zip(cuts, sessions, strict=True):
            names = [port.name for port in cut.adds]
            answers = session.run(names, {port.name: arrays[port.name] for port in cut.takes})
            arrays.update(zip(names, answers, strict=True))

    def linked() -> None:
        for session, binding in zip(sessions, bound, strict=True):
            session.run_with_iobinding(binding)

    return Rivals(lambda: whole_session.run_with_iobinding(whole_bound), copied, linked)


def _session(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _bound(session: Any, pool: Pool) -> Any:
    """Bind inputs to what earlier stages made, and outputs to new tensors of batch 1 in the pool."""
    binding = session.io_binding()
    for value in session.get_inputs():
        binding.bind_ortvalue_input(value.name, pool[value.name])
    for value in session.get_outputs():
        dtype = {"tensor(float)": np.float32, "tensor(uint8)": np.uint8}[value.type]
        shape = [size if isinstance(size, int) else 1 for size in value.shape]
        pool[value.name] = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(shape, dtype))
        binding.bind_ortvalue_output(value.name, pool[value.name])
    return binding


def openvino_rivals(whole: Path, folder: Path, cuts: Sequence[StageCut], image: np.ndarray) -> Rivals:
    core = import_openvino().Core()
    whole_request = openvino_request(core, read_onnx(whole), 1)
    requests = [openvino_request(core, core.read_model(folder / cut.file), 1) for cut in cuts]
    apart = [_OpenvinoStage(openvino_request(core, core.read_model(folder / cut.file), 1), cut) for cut in cuts]
    pool: Pool = {}
    for request in requests:
        link(request, pool)
    for request in (whole_request, requests[0]):
        request.get_input_tensor(0).data[:] = image

    def copied() -> None:
        arrays: Pool = {"input": image}
        for stage in apart:
            stage.copied(arrays)

    def linked() -> None:
        for request in requests:
            request.infer(share_outputs=True)

    return Rivals(lambda: whole_request.infer(share_outputs=True), copied, linked)


def openvino_request(core: Any, model: Any, batch: int | None) -> Any:
    """Compile for one batch size, or for any; float32, one thread."""
    if batch is not None:
        shapes = {port.get_any_name(): list(port.get_partial_shape())[1:] for port in model.inputs}
        model.reshape({name: [batch, *(size.get_length() for size in shape)] for name, shape in shapes.items()})
    config = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, "PERFORMANCE_HINT": "LATENCY"}
    return core.compile_model(model, "CPU", {**config, "NUM_STREAMS": 1}).create_infer_request()


class _OpenvinoStage:
    """A request with tensors of its own, filled and read as `Session.run` does."""

    def __init__(self, request: Any, cut: StageCut) -> None:
        self._infer = request.infer
        self._takes = [(port.name, request.get_tensor(port.engine_name).data) for port in cut.takes]
        self._adds = [(port.name, request.get_tensor(port.engine_name).data) for port in cut.adds]

    def copied(self, pool: Pool) -> None:
        for name, memory in self._takes:
            np.copyto(memory, pool[name], "no")
        self._infer(share_outputs=True)
        pool.update(self._adds)


def link(request: Any, pool: Pool) -> None:
    """Let a request read what earlier ones write, and offer what it writes itself, by tensor name."""
    for index, port in enumerate(request.model_inputs):
        if (name := port.get_any_name()) in pool:
            request.set_input_tensor(index, pool[name])
    for index, port in enumerate(request.model_outputs):
        pool |= dict.fromkeys(port.get_names(), request.get_output_tensor(index))


class TfliteStage:
    """An interpreter with its tensors bound: index by pool name, and a view of every output."""

    def __init__(self, path: Path, takes: Sequence[Port], adds: Sequence[Port]) -> None:
        interpreter = Interpreter(model_path=str(path), num_threads=1)
        interpreter.allocate_tensors()
        details = (*interpreter.get_input_details(), *interpreter.get_output_details())
        places = {each["name"]: each["index"] for each in details}
        self._takes = [(port.name, places[port.engine_name]) for port in takes]
        self._adds = [(port.name, places[port.engine_name]) for port in adds]
        self._views = [(port.name, interpreter.tensor(places[port.engine_name])) for port in adds]
        self._set, self._invoke, self._get = interpreter.set_tensor, interpreter.invoke, interpreter.get_tensor

    def copied(self, pool: Pool) -> None:
        for name, index in self._takes:
            self._set(index, pool[name])
        self._invoke()
        for name, index in self._adds:
            pool[name] = self._get(index)

    def linked(self, pool: Pool) -> None:
        """Run on views of other interpreters' tensors. They are made when used: a live one blocks the next run."""
        for name, index in self._takes:
            self._set(index, pool[name]())
        self._invoke()
        pool.update(self._views)


def tflite_rivals(whole: TfliteStage, stages: Sequence[TfliteStage], image: np.ndarray) -> Rivals:
    def copied() -> None:
        pool: Pool = {"input": image}
        for stage in stages:
            stage.copied(pool)

    def linked() -> None:
        pool: Pool = {"input": lambda: image}
        for stage in stages:
            stage.linked(pool)

    return Rivals(lambda: whole.linked({"input": lambda: image}), copied, linked)


def every_rival(data: Path, folder: Path) -> dict[tuple[str, str], Rivals]:
    """Convert, quantize and cut the network for every engine and precision."""
    image = resnet20_exits.images(data, "test_0")[:1]
    calibration = {"input": resnet20_exits.images(data, "train_0")[:200]}
    files = {"fp32": data / resnet20_exits.ONNX_FILE, "int8": folder / "int8.onnx"}
    save_onnx(quantize(files["fp32"], resnet20_exits.INPUTS, calibration, Choices())[0], files["int8"])
    found = {}
    for precision, path in files.items():
        for engine, cut, rivals in (
            ("onnxruntime", cut_onnx, onnxruntime_rivals),
            ("openvino", cut_openvino, openvino_rivals),
        ):
            into = folder / f"{engine}.{precision}"
            into.mkdir()
            cuts = cut(path, resnet20_exits.EXITS, resnet20_exits.INPUTS, into)
            found[engine, precision] = rivals(path, into, cuts, image)
        found["tflite", precision] = _tflite(data, folder / f"tflite.{precision}", precision, image)
    return found


def _tflite(data: Path, into: Path, precision: Any, image: np.ndarray) -> Rivals:
    into.mkdir()
    made = resnet20_exits.tflite(data, precision, into)
    cuts = cut_tflite(into / made.file, resnet20_exits.EXITS, made.takes, made.adds, 1, into)
    if precision == "int8":
        scale, zero_point = made.takes[0].quantization.scale, made.takes[0].quantization.zero_point
        image = np.clip(np.round(image / scale) + zero_point, -128, 127).astype(np.int8)
    stages = [TfliteStage(into / cut.file, cut.takes, cut.adds) for cut in cuts]
    return tflite_rivals(TfliteStage(into / made.file, made.takes, made.adds), stages, image)


def fifth_percentiles(rivals: dict[tuple[str, str], Rivals], turns: int) -> dict[tuple[str, str], Rivals]:
    """Return seconds in place of calls; all rivals take turns, so that the machine's moods fall on all alike."""
    seconds: dict[tuple[str, str], list[list[float]]] = {key: [[], [], []] for key in rivals}
    for _ in range(turns):
        for key, calls in rivals.items():
            for place, call in enumerate(calls):
                call()  # untimed: the caches hold another engine's weights before it
                start = time.perf_counter()
                call()
                seconds[key][place].append(time.perf_counter() - start)
    return {key: Rivals(*(float(np.percentile(each, 5)) for each in taken)) for key, taken in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    public_data.add_argument(parser)
    parser.add_argument("--turns", type=int, default=500)
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        rivals = every_rival(options.data, Path(folder))
        figures = fifth_percentiles(rivals, options.turns)
    boundaries = len(resnet20_exits.EXITS) - 1
    print("engine       precision   whole µs   chain µs: copied   linked   per boundary: copied   linked   goal")
    for (engine, precision), seconds in figures.items():
        whole, copied, linked = (1e6 * each for each in seconds)
        print(
            f"{engine:<12} {precision:<10} {whole:9.1f} {copied:18.1f} {linked:8.1f} "
            f"{(copied - whole) / boundaries:22.1f} {(linked - whole) / boundaries:8.1f} {GOALS_US[engine]:6}"
        )


if __name__ == "__main__":
    main()
