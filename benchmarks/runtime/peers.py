"""The p50 of ``ipj-edge bench`` beside each engine's own benchmark tool: same file, one thread, fp32, interleaved.

openvino: ``benchmark_app`` (sync, latency hint, f32). TFLite: ``litert-benchmark``. onnxruntime: a bare loop around
``InferenceSession.run`` with the same session options. Goal: within 3 %. Rounds of ours and theirs alternate in one
run, so that a busy machine slows both; the figure is the median over the rounds of their ratio.

And what the harness itself costs: CPU time per inference of a bench whose model does nothing. Goal: under 20 µs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from ipj_edge.benchmark import BenchOptions, bench
from ipj_edge.benchmark.run.measuring import Plan, measure, warm_up
from ipj_edge.bundles.bundle import open_bundle
from ipj_edge.bundles.manifest import Bundle
from ipj_edge.conversion import ConvertRequest, convert
from ipj_edge.energy import Meter
from ipj_edge.runtime.golden import read_golden
from ipj_edge.runtime.model import Model
from ipj_edge.runtime.programs import Programs
from ipj_edge.values import EffectiveSettings, Settings, TensorSpec

ROUNDS = 7
GOAL = 0.03
HARNESS_GOAL_S = 20e-6
BIN = Path(sys.executable).parent


def build() -> nn.Module:
    """Return a network of about a millisecond: six 3×3 convolutions of 32 channels on 48×48."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU()]
    for _ in range(5):
        layers += [nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)).eval()


def ours(bundle: Path) -> float:
    """Return the p50 of our bench in milliseconds."""
    options = BenchOptions(settings=Settings(threads=1), probe="none", windows=5, window_s=0.4)
    return 1e3 * bench([bundle], options).results[0].latency_s.p50


def benchmark_app(bundle: Path) -> float:
    """Return the median latency of openvino's benchmark_app in milliseconds."""
    options = {"d": "CPU", "hint": "none", "nstreams": 1, "nthreads": 1, "api": "sync", "t": 2,
               "infer_precision": "f32", "shape": "[1,3,48,48]"}  # fmt: skip
    command = ["benchmark_app", "-m", bundle / "model.xml"]
    command += [part for name, value in options.items() for part in (f"-{name}", value)]
    return float(_find(command, r"Median:\s+([0-9.]+) ms"))


def litert_benchmark(bundle: Path) -> float:
    """Return the median latency of litert-benchmark in milliseconds."""
    with tempfile.NamedTemporaryFile(suffix=".json") as result:
        command = ["litert-benchmark", "--model", bundle / "model.tflite", "--use_cpu", "--num_threads", "1",
                   "--num_runs", "2000", "--warmup_runs", "200", "--result_json", result.name]  # fmt: skip
        _find(command, "")
        return float(_median_ms(json.loads(Path(result.name).read_text())))


def bare_onnxruntime(bundle: Path) -> float:
    """Return the median of a bare loop around onnxruntime in milliseconds."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(bundle / "model.onnx", options, providers=["CPUExecutionProvider"])
    images = read_golden(bundle)[0]["image"]
    feeds = [{session.get_inputs()[0].name: images[n : n + 1]} for n in range(len(images))]
    for n in range(200):
        session.run(None, feeds[n % len(feeds)])
    taken, end, n = [], time.perf_counter() + 2, 0
    while time.perf_counter() < end:
        start = time.perf_counter()
        session.run(None, feeds[n % len(feeds)])
        taken.append(time.perf_counter() - start)
        n += 1
    return 1e3 * statistics.median(taken)


class Nothing:
    """A session that answers at once with what it answered before."""

    def __init__(self, bundle: Bundle) -> None:
        (self.stage,) = bundle.manifest.stages
        self.effective = EffectiveSettings(
            engine="nothing", engine_version="0", threads=1, execution_precision="f32", affinity=1
        )
        self._answer = {port.name: np.zeros((1, 10), np.float32) for port in self.stage.adds}

    def run(self, feeds: object) -> dict[str, np.ndarray]:
        return self._answer

    def clone(self) -> Nothing:
        return self

    def close(self) -> None:
        pass


def harness_cost(bundle: Path) -> tuple[float, float]:
    """Return CPU seconds per inference of the timed loop alone, and with `Model.run` around a session that is free."""
    opened = open_bundle(bundle)
    model = Model(opened.manifest, Programs(whole=Nothing(opened)), Settings())
    images = read_golden(bundle)[0]["image"]
    queries = [{"image": images[n : n + 1]} for n in range(len(images))]
    plan = Plan(windows=5, window_s=0.2, max_s=1.0, error=0.01)
    costs = []
    for run in (lambda query: None, model.run):
        with Meter(["modelled"]) as meter:
            measured = measure(run, queries, meter, plan, warmth=warm_up(run, queries))
        costs.append(measured.total("cpu_s") / measured.total("inferences"))
    return costs[0], costs[1]


def _median_ms(report: dict[str, object]) -> float:
    for key, value in report.items():
        if isinstance(value, dict):
            try:
                return _median_ms(value)
            except KeyError:
                continue
        if re.search(r"(p50|median)", key, re.IGNORECASE) and isinstance(value, int | float):
            return float(value) / (1e3 if key.endswith("us") else 1.0)
    raise KeyError("no median in the report of litert-benchmark")


def _find(command: list[object], pattern: str) -> str:
    program = shutil.which(str(command[0]), path=os.pathsep.join([str(BIN), os.environ["PATH"]]))
    if program is None:
        raise RuntimeError(f"{command[0]} is neither beside {sys.executable} nor on PATH")
    ran = subprocess.run([program, *map(str, command[1:])], capture_output=True, text=True, check=True)
    match = re.search(pattern, ran.stdout)
    if match is None:
        raise RuntimeError(f"no '{pattern}' in the output of {command[0]}:\n{ran.stdout[-2000:]}")
    return match.group(1) if match.groups() else match.group(0)


def main() -> int:
    """Convert the network, print medians and ratios, and return how many goals are missed."""
    peers = (
        ("benchmark_app", "openvino-cpu", benchmark_app),
        ("litert-benchmark", "tflite-cpu", litert_benchmark),
        ("bare loop", "onnxruntime-cpu", bare_onnxruntime),
    )
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        request = ConvertRequest(
            source="benchmarks.runtime.peers:build",
            targets=tuple(target for _, target, _ in peers), precisions=("fp32",),
            into=Path(folder), inputs=(TensorSpec(name="image", shape=(1, 3, 48, 48), dtype="float32"),), name="net",
        )  # fmt: skip
        for outcome in convert(request):
            if outcome.error is not None:
                raise outcome.error
        for name, target, peer in peers:
            bundle = Path(folder) / f"net.{target}.fp32.ipj"
            rounds = [(ours(bundle), peer(bundle)) for _ in range(ROUNDS)]
            mine, theirs = (statistics.median(column) for column in zip(*rounds, strict=True))
            ratio = statistics.median(one / other for one, other in rounds)
            missed += abs(ratio - 1) > GOAL
            goal = f"ratio {ratio:.3f} (goal {1 - GOAL:.2f} to {1 + GOAL:.2f})"
            print(f"{target:<16} ours {mine:.4f} ms, {name} {theirs:.4f} ms, {goal}", flush=True)
        loop_s, whole_s = harness_cost(Path(folder) / "net.onnxruntime-cpu.fp32.ipj")
        missed += whole_s > HARNESS_GOAL_S
        print(f"harness: {1e6 * loop_s:.2f} µs CPU per inference for the timed loop, {1e6 * whole_s:.2f} µs with "
              f"Model.run around a session that does nothing (goal {1e6 * HARNESS_GOAL_S:.0f} µs)")  # fmt: skip
    print(f"{missed} goals missed")
    return missed


if __name__ == "__main__":
    main()
