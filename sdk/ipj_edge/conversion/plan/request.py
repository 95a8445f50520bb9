"""What the user asks of a conversion, and what came of it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ipj_edge.bundles.manifest import Bundle
from ipj_edge.errors import IpjEdgeError
from ipj_edge.values import Meaning, Precision, Preprocessing, Scheme, TensorSpec, TrainedRanges


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
        isa: Instruction set the device is known to have, e.g. ``avx2``; empty assumes VNNI for int8.
        ranges: Trained activation ranges for int8; None takes the source's own, where it has any.
        max_batch: Largest batch given to an engine at once.
        split_at: Outputs that are exits: the model is cut into a stage for each. ``("exits",)`` takes all outputs;
            empty takes what the source itself calls exits.
        stage_precision: Precision of every stage by depth, of int8 bundles with several exits; ``("auto",)`` measures
            which is cheaper here, stage by stage; empty = all int8.
        name: Name of the bundles; empty takes the source's.
        seed: Seed of the random inputs.
        force: Replace bundles that are there already.
        scheme: How to quantize int8: ``static`` (the default) or ``dynamic``; given without precisions it means int8.
        keep_float: Glob patterns of operators to keep in floating point, matched with what `inspect` lists.
        providers: Execution providers by their short names, best first; empty takes the target's default.
        min_mapped: Least share of operators the accelerator has to run, 0..1; None for all of them.
        sign: Private key file (Ed25519, PEM) to sign the bundles with; None leaves them unsigned.
        half_io: Make inputs and outputs of fp16 files float16 inside the engine too.
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
    isa: str = ""
    ranges: TrainedRanges | None = None
    max_batch: int = 32
    split_at: tuple[str, ...] = ()
    stage_precision: tuple[str, ...] = ()
    name: str = ""
    seed: int = 0
    force: bool = False
    scheme: Scheme | None = None
    keep_float: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    half_io: bool = False
    sign: Path | None = None
    min_mapped: float | None = None


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
