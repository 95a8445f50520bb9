"""The p50 of ``ipj-edge bench`` beside each engine's own benchmark tool: same file, one thread, fp32, interleaved.

openvino: ``benchmark_app`` (sync, latency hint, f32). TFLite: ``litert-benchmark``. Goal: within 5 %. Rounds of ours
and theirs alternate in one run; the figure is the median of the rounds.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

from ipj_edge.benchmark import BenchOptions, bench
from ipj_edge.conversion import ConvertRequest, convert
from ipj_edge.values import Settings, TensorSpec

ROUNDS = 5
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
    command = ["benchmark_app", "-m", bundle / "model.xml", "-d", "CPU", "-hint", "latency", "-api", "sync", "-t", "2",
               "-nthreads", "1", "-infer_precision", "f32", "-shape", "[1,3,48,48]"]  # fmt: skip
    return float(_find(command, r"Median:\s+([0-9.]+) ms"))


def litert_benchmark(bundle: Path) -> float:
    """Return the median latency of litert-benchmark in milliseconds."""
    with tempfile.NamedTemporaryFile(suffix=".json") as result:
        command = ["litert-benchmark", "--model", bundle / "model.tflite", "--use_cpu", "--num_threads", "1",
                   "--num_runs", "2000", "--warmup_runs", "200", "--result_json", result.name]  # fmt: skip
        _find(command, "")
        return float(_median_ms(json.loads(Path(result.name).read_text())))


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
    ran = subprocess.run([BIN / str(command[0]), *map(str, command[1:])], capture_output=True, text=True, check=True)
    match = re.search(pattern, ran.stdout)
    if match is None:
        raise RuntimeError(f"no '{pattern}' in the output of {command[0]}:\n{ran.stdout[-2000:]}")
    return match.group(1) if match.groups() else match.group(0)


def main() -> None:
    """Convert the network and print both medians and their ratio."""
    with tempfile.TemporaryDirectory() as folder:
        request = ConvertRequest(
            source="peers:build", targets=("openvino-cpu", "tflite-cpu"), precisions=("fp32",), into=Path(folder),
            inputs=(TensorSpec(name="image", shape=(1, 3, 48, 48), dtype="float32"),), name="net",
        )  # fmt: skip
        for outcome in convert(request):
            if outcome.error is not None:
                raise outcome.error
        for name, target, peer in (
            ("benchmark_app", "openvino-cpu", benchmark_app),
            ("litert-benchmark", "tflite-cpu", litert_benchmark),
        ):
            bundle = Path(folder) / f"net.{target}.fp32.ipj"
            rounds = [(ours(bundle), peer(bundle)) for _ in range(ROUNDS)]
            mine, theirs = (statistics.median(column) for column in zip(*rounds, strict=True))
            ratio = f"ratio {mine / theirs:.3f} (goal 0.95 to 1.05)"
            print(f"{target:<14} ours {mine:.4f} ms, {name} {theirs:.4f} ms, {ratio}")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
