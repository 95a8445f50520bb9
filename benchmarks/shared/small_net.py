"""A small convolutional network (1×8×8 images, 10 logits) as an ONNX file, and bundles of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ipj_edge.bundles.manifest import (
    SCHEMA_VERSION,
    BatchSpec,
    Bundle,
    Manifest,
    ParityRecord,
    Requirements,
    SourceRecord,
    StageSpec,
)
from ipj_edge.protocols import StageFiles
from ipj_edge.values import TensorSpec

INPUT = TensorSpec(name="image", shape=("batch", 1, 8, 8), dtype="float32")
OUTPUT = TensorSpec(name="logits", shape=("batch", 10), dtype="float32")


class SmallNet:
    """A source over the ONNX file, as far as a converter needs one."""

    name, file, kind, precision = "small", "small.onnx", "onnx", "fp32"
    inputs, outputs = (INPUT,), (OUTPUT,)

    def __init__(self, folder: Path) -> None:
        self._path = folder / self.file
        onnx.save(_model(), self._path)

    def onnx_path(self) -> Path:
        return self._path


def _model() -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    shapes = {"w1": (16, 1, 3, 3), "w2": (32, 16, 3, 3), "w3": (10, 32)}
    weights = [
        numpy_helper.from_array((rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("GlobalAveragePool", ["r2"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "w3"], ["logits"], transB=1),
    ]
    info = [helper.make_tensor_value_info(spec.name, TensorProto.FLOAT, spec.shape) for spec in (INPUT, OUTPUT)]
    graph = helper.make_graph(nodes, "small", info[:1], info[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def bundle_of(made: StageFiles, folder: Path, engine: str) -> Bundle:
    """Describe converted files as a bundle; fields that no session reads are left empty."""
    stage = StageSpec(
        name="all",
        file=made.file,
        takes=made.takes,
        adds=made.adds,
        exit_output=OUTPUT.name,
        precision="fp32",
        macs=None,
        parameters=0,
        file_bytes=0,
        operators=made.operators,
    )
    manifest = Manifest(
        schema_version=SCHEMA_VERSION,
        digest="",
        name="small",
        target=f"{engine}-cpu",
        precision="fp32",
        created_with=made.versions,
        source=SourceRecord(file="small.onnx", kind="onnx", sha256=""),
        files=(),
        inputs=(INPUT,),
        outputs=(OUTPUT,),
        stages=(stage,),
        batch=BatchSpec(static=None, probed=(1,), max=32),
        parity=ParityRecord(verified_on="target", tolerance=0, seed=0, outputs=()),
        requires=Requirements(engine=engine, engine_version=""),
        golden_samples=0,
    )
    return Bundle(path=folder, manifest=manifest)
