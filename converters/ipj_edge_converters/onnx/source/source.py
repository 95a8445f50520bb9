"""An ONNX model as a source: reference run, and the file that converters get."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from ipj_edge.protocols import Array, Feeds, MacCount, OnnxForm, Source
from ipj_edge.values import Precision, TensorSpec
from ipj_edge_converters.onnx.files import load_onnx, save_onnx
from ipj_edge_converters.onnx.macs import count_onnx
from ipj_edge_converters.onnx.source.reference import OnnxReference
from ipj_edge_converters.sources.feeds import check_feeds, run_in_parts
from ipj_edge_converters.sources.origin import Origin


class OnnxSource:
    """An opened ONNX model; see `ipj_edge.protocols.Source`.

    Half-precision models are widened to float32, see `onnx_widening`; ``precision`` stays what the file was.

    Attributes:
        notes: What a reader of a bundle's manifest has to know.
        only_size: Why it takes one size along its first axis only; empty where it takes any number of samples.
    """

    forms: tuple[str, ...] = ("onnx",)

    def __init__(
        self,
        origin: Origin,
        path: Path,
        inputs: tuple[TensorSpec, ...],
        outputs: tuple[TensorSpec, ...],
        reference: OnnxReference,
        *,
        notes: tuple[str, ...],
        max_batch: int,
        only_size: str = "",
    ) -> None:
        self.kind, self.name, self.file, self.sha256 = origin.kind, origin.name, origin.file, origin.sha256
        self.precision: Precision = origin.precision
        self.inputs, self.outputs, self.notes, self.only_size = inputs, outputs, notes, only_size
        self.versions = {name: version(name) for name in ("onnx", "onnxruntime")}
        self._path, self._reference, self._max_batch = path, reference, max_batch

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """Run the model as it is written, on any number of samples."""
        check_feeds(feeds, self.inputs)
        return run_in_parts(self._run, feeds, self.inputs, self.outputs, self._max_batch)

    def count(self) -> MacCount:
        """Count multiply-accumulates and weights for one sample."""
        return count_onnx(load_onnx(self._path), self.inputs)

    def onnx_path(self) -> Path:
        """Return the path of the model as it is run: weights inline, half precision widened, no metadata."""
        return self._path

    def _run(self, feeds: Feeds) -> dict[str, Array]:
        answers = self._reference.run([feeds[spec.name] for spec in self.inputs])
        return {spec.name: answer for spec, answer in zip(self.outputs, answers, strict=True)}


def write_source(model: Any, workdir: Path) -> Path:
    """Write the cleaned model where converters will read it."""
    path = workdir / "source.onnx"
    save_onnx(model, path)
    return path


_source: type[Source] = OnnxSource
_onnx: type[OnnxForm] = OnnxSource
