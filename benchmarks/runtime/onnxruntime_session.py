"""What a session of onnxruntime-cpu costs over the engine's own fastest call.

Run: python -m benchmarks.runtime.onnxruntime_session
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from benchmarks.shared.interleaved import medians_s, report
from benchmarks.shared.small_net import INPUT, OUTPUT, SmallNet, bundle_of

from ipj_edge.bundles.manifest import OperatorCount
from ipj_edge.plugins import needs
from ipj_edge.protocols import StageFiles
from ipj_edge.values import Port, Settings
from ipj_edge_targets.onnxruntime_cpu import OnnxruntimeCpu


def port(spec) -> Port:
    return Port(name=spec.name, engine_name=spec.name, shape=spec.shape, dtype=spec.dtype)


def main() -> None:
    with needs("onnxruntime-cpu"):
        import onnxruntime
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = SmallNet(folder).onnx_path().name
        made = StageFiles(
            file=file,
            takes=(port(INPUT),),
            adds=(port(OUTPUT),),
            static_batch=None,
            operators=OperatorCount(total=0),
            versions={},
        )
        (session,) = OnnxruntimeCpu().open(bundle_of(made, folder, "onnxruntime"), Settings(threads=1))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        engine = onnxruntime.InferenceSession(str(folder / file), options, providers=["CPUExecutionProvider"])
        for batch in (1, 8):
            feeds = {"image": np.random.default_rng(0).standard_normal((batch, 1, 8, 8)).astype(np.float32)}
            binding = engine.io_binding()
            binding.bind_ortvalue_input("image", onnxruntime.OrtValue.ortvalue_from_numpy(feeds["image"]))
            answer = onnxruntime.OrtValue.ortvalue_from_shape_and_type([batch, 10], np.float32)
            binding.bind_ortvalue_output("logits", answer)
            took = medians_s(
                {
                    "session": lambda feeds=feeds: session.run(feeds),
                    "bound": lambda binding=binding: engine.run_with_iobinding(binding),
                    "plain": lambda feeds=feeds: engine.run(["logits"], feeds),
                }
            )
            others = {"engine's plain run": took["plain"]}
            report(f"onnxruntime-cpu, batch {batch}, 1 thread", took["session"], took["bound"], others)


if __name__ == "__main__":
    main()
