"""What the user asks of a conversion, and what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ipj_edge.bundles.manifest import Bundle
from ipj_edge.errors import IpjEdgeError
from ipj_edge.values import ConversionOptions, Meaning, Precision, Preprocessing, TensorSpec


class ConvertRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One call of ``convert``.

    Attributes:
        source: ``file.py:callable``, ``package.module:callable``, or the path of a ``.pt2`` or ``.onnx`` file.
        targets: Names of targets.
        into: Folder the bundles are published to.
        precisions: Precisions wanted; empty means the source's own.
        weights: Weights for a factory: safetensors, or a state dict.
        inputs: Inputs as described by the user; empty where the source says it all.
        output_names: Names for the outputs, in order.
        meanings: What outputs hold, by name; what is not given is inferred.
        labels: Class names in output order.
        preprocessing: How images become inputs, by input name; ``""`` names the only input.
        calibration: Calibration set (see `ipj_edge.samples.data.load_samples`); needed for static int8.
        data: Labelled data for the accuracy gate, and further inputs for parity.
        max_accuracy_drop: Largest drop of top-1 accuracy (0.01 is one point); None for no gate.
        tolerance: Relative L2 allowed instead of the precision's own; recorded.
        max_batch: Largest batch given to an engine at once.
        name: Name of the bundles; empty takes the source's.
        seed: Seed of the random inputs.
        force: Replace bundles that are there already.
        sign: Private key file (Ed25519, PEM) to sign the bundles with; None leaves them unsigned.
        options: How to convert.
    """

    source: str
    targets: tuple[str, ...]
    into: Path
    precisions: tuple[Precision, ...] = ()
    weights: Path | None = None
    inputs: tuple[TensorSpec, ...] = ()
    output_names: tuple[str, ...] = ()
    meanings: dict[str, Meaning] = {}
    labels: tuple[str, ...] = ()
    preprocessing: dict[str, Preprocessing] = {}
    calibration: str | None = None
    data: str | None = None
    max_accuracy_drop: float | None = None
    tolerance: float | None = None
    max_batch: int = 32
    name: str = ""
    seed: int = 0
    force: bool = False
    sign: Path | None = None
    options: ConversionOptions = ConversionOptions()


def take_options(given: dict[str, Any]) -> ConversionOptions:
    """Take the options of a conversion out of arguments by name; what is left there is the request's own."""
    known = [name for name in ConversionOptions.__struct_fields__ if name in given]
    return ConversionOptions(**{name: given.pop(name) for name in known})


class Outcome:
    """What came of one target and precision: a bundle, or the error that stopped it.

    Attributes:
        target: Name of the target.
        precision: Precision asked for.
        bundle: The published bundle; None when there is none.
        error: Why there is none.
        seconds: Wall time it took.
        accuracy: (source, bundle) top-1 on the gate's data; None without a gate.
        warnings: What the user should know although it passed.
    """

    def __init__(
        self,
        target: str,
        precision: Precision,
        *,
        seconds: float,
        bundle: Bundle | None = None,
        error: IpjEdgeError | None = None,
        accuracy: tuple[float, float] | None = None,
        warnings: tuple[str, ...] = (),
    ) -> None:
        self.target, self.precision, self.seconds = target, precision, seconds
        self.bundle, self.error, self.accuracy, self.warnings = bundle, error, accuracy, warnings
