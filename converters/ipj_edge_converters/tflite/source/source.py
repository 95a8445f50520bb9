"""A .tflite file as a source: reference run in a child process, and the file that converters get."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from ipj_edge.protocols import Feeds, MacCount, Source, TfliteForm
from ipj_edge.values import Precision, TensorSpec
from ipj_edge_converters.sources.batch_proof import SizedInputs
from ipj_edge_converters.sources.feeds import check_feeds
from ipj_edge_converters.sources.origin import Origin
from ipj_edge_converters.tflite.counting import count_tflite
from ipj_edge_converters.tflite.entry import TfliteEntry
from ipj_edge_converters.tflite.source.reference import TfliteReference
from ipj_edge_converters.tflite.source.specs import batch_of, to_real, to_stored


class TfliteSource:
    """An opened .tflite file; see `ipj_edge.protocols.Source`. Callers give and get real values.

    What the file keeps between inferences is set back before each sample: samples do not depend on one another.

    Attributes:
        notes: What a reader of a bundle's manifest has to know.
        only_size: Why it takes one size along its first axis only; empty where it takes any number of samples.
    """

    forms: tuple[str, ...] = ("tflite",)

    def __init__(
        self,
        origin: Origin,
        path: Path,
        entry: TfliteEntry,
        sized: SizedInputs,
        outputs: tuple[TensorSpec, ...],
        reference: TfliteReference,
        *,
        model: Any,
        notes: tuple[str, ...],
    ) -> None:
        self.kind, self.name, self.file, self.sha256 = origin.kind, origin.name, origin.file, origin.sha256
        self.precision: Precision = origin.precision
        self.inputs, self.only_size = sized.inputs, sized.only_size
        self.outputs, self.notes = outputs, notes
        self.versions = {"ai-edge-litert": version("ai-edge-litert")}
        self._path, self._entry, self._reference, self._model = path, entry, reference, model

    def run(self, feeds: Feeds) -> dict[str, Any]:
        """Run the file as it is, on any number of samples that fill its batch."""
        check_feeds(feeds, self.inputs)
        stored = [to_stored(tensor, feeds[tensor.argument]) for tensor in self._entry.inputs]
        answers = self._reference.run(
            stored,
            step=batch_of(self._entry),
            batched=[spec.batch_axis is not None for spec in self.inputs],
            joined=[spec.batch_axis is not None for spec in self.outputs],
        )
        return {
            spec.name: to_real(tensor, answer)
            for spec, tensor, answer in zip(self.outputs, self._entry.outputs, answers, strict=True)
        }

    def count(self) -> MacCount:
        """Count multiply-accumulates and weights for one sample."""
        return count_tflite(self._model, batch_of(self._entry))

    def tflite_path(self) -> Path:
        """Return the path of the file: the source's own bytes, unless a signature or sizes had to be chosen."""
        return self._path


_source: type[Source] = TfliteSource
_tflite: type[TfliteForm] = TfliteSource
