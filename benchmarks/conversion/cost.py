"""Seconds and peak memory of converting the digits example for all targets in one process (``make demo`` first)."""

from __future__ import annotations

import resource
import sys
import tempfile
from pathlib import Path
from time import monotonic

from ipj_edge.conversion import ConvertRequest, convert
from ipj_edge.values import TensorSpec


def main(folder: Path) -> None:
    """Convert for three targets at two precisions and print what each cost."""
    start = monotonic()
    with tempfile.TemporaryDirectory() as into:
        request = ConvertRequest(
            source="examples/digits.py:build",
            targets=("openvino-cpu", "onnxruntime-cpu", "tflite-cpu"),
            precisions=("fp32", "int8"),
            into=Path(into),
            weights=folder / "digits.safetensors",
            inputs=(TensorSpec(name="image", shape=(1, 1, 8, 8), dtype="float32"),),
            calibration=str(folder / "cal.npz"),
        )
        outcomes = convert(request)
    for outcome in outcomes:
        print(f"{outcome.target:<18}{outcome.precision:<6}{outcome.seconds:6.1f} s  {outcome.error or 'ok'}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"all: {monotonic() - start:.1f} s, peak {peak:.0f} MiB, children up to {children:.0f} MiB")
    heavy = ("torch", "onnx", "onnxruntime", "openvino", "nncf", "litert_torch", "ai_edge_quantizer")
    print("imported here, once each:", ", ".join(name for name in heavy if name in sys.modules))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
