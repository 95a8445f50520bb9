"""What a session of openvino-cpu costs over the engine's own fastest call.

Run: python -m benchmarks.runtime.openvino_session
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from benchmarks.shared.interleaved import medians_s, report
from benchmarks.shared.small_net import SmallNet, bundle_of

from ipj_edge.protocols import ConversionTask
from ipj_edge.values import Settings
from ipj_edge_converters.openvino.convert import ToOpenvino
from ipj_edge_targets.openvino_cpu import OpenvinoCpu
from ipj_edge_targets.openvino_programs import import_openvino


def engine_request(openvino, file: Path, batch: int, *, fixed: bool):
    """Compile as the target does, with one input tensor set once."""
    core = openvino.Core()
    model = core.read_model(file)
    if fixed:
        model.reshape([batch, 1, 8, 8])
    config = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
    }
    request = core.compile_model(model, "CPU", config).create_infer_request()
    request.set_input_tensor(0, openvino.Tensor(openvino.Type.f32, [batch, 1, 8, 8]))
    return request


def main() -> None:
    openvino = import_openvino()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = SmallNet(folder)
        into = folder / "out"
        into.mkdir()
        task = ConversionTask(source=source, target="openvino-cpu", precision="fp32", calibration=None, into=into)
        made = ToOpenvino().convert(task)
        (session,) = OpenvinoCpu().open(bundle_of(made, into, "openvino"), Settings(threads=1))
        for batch in (1, 8):
            feeds = {"image": np.random.default_rng(0).standard_normal((batch, 1, 8, 8)).astype(np.float32)}
            fixed = engine_request(openvino, into / made.file, batch, fixed=True)
            dynamic = engine_request(openvino, into / made.file, batch, fixed=False)
            took = medians_s(
                {
                    "session": lambda feeds=feeds: session.run(feeds),
                    "fixed": lambda request=fixed: request.infer(share_outputs=True),
                    "dynamic": lambda request=dynamic: request.infer(share_outputs=True),
                }
            )
            own = "fixed" if batch == 1 else "dynamic"
            other = "dynamic" if batch == 1 else "fixed"
            others = {f"engine, {other} shape": took[other]}
            report(f"openvino-cpu, batch {batch}, 1 thread", took["session"], took[own], others)


if __name__ == "__main__":
    main()
