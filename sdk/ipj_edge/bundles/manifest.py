"""The manifest: the contract between the workstation that makes a bundle and the device that runs it.

Field by field it is described in ``docs/manifest.schema.json``, which is generated from these classes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from ipj_edge.values import Port, Precision, Preprocessing, Scheme, TensorSpec

SCHEMA_VERSION = 1
MANIFEST_NAME = "manifest.json"
GOLDEN_NAME = "golden.npz"
# What may come into a bundle's folder after it was published: tuned exits (sealed by a digest of their own), the proof
# on its device and the signature (both name the manifest's digest).
LATER_NAMES = ("exits.json", "verified.json", "signature.json")
SUFFIX = ".ipj"


class SourceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Where a bundle came from: file name (never a path), kind of source and sha256 of its bytes."""

    file: str
    kind: str
    sha256: str


class FileRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a bundle.

    Attributes:
        path: Path relative to the bundle, with forward slashes.
        size_bytes: Size in bytes.
        sha256: Hash of its bytes.
        reproducible: False when converting the same source again may give other bytes.
    """

    path: str
    size_bytes: int
    sha256: str
    reproducible: bool = True


class OperatorCount(msgspec.Struct, frozen=True, kw_only=True):
    """What was read back from the converted file.

    Attributes:
        total: Operators that compute (constants and conversions between dtypes not counted).
        float_operators: Names or types of those that compute in floating point.
    """

    total: int
    float_operators: tuple[str, ...] = ()


class StateTensor(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor that a session keeps from one inference to the next; `Model.reset` sets it back to its start.

    Attributes:
        name: Name inside the engine's file.
        shape: Sizes; empty where the file does not say.
        dtype: numpy dtype, or ``resource``.
        kind: ``variable`` belongs to an operator such as an LSTM, ``resource`` is written and read by operators.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: Literal["variable", "resource"] = "variable"


class StageSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One stage: a program of the engine. A plain model has exactly one.

    Attributes:
        name: Name of the stage.
        file: The engine's main file, relative to the bundle.
        takes: Tensors it takes from the pool of live tensors.
        adds: Tensors it adds to the pool.
        exit_output: The output of the model that this stage can answer with; None when it cannot.
        precision: Precision of the stage's file.
        macs: Multiply-accumulates for one sample; None when they could not be counted.
        macs_reason: Why macs is None.
        parameters: Number of weights.
        file_bytes: Bytes of the engine's files of this stage.
        operators: What was read back from the file.
        proxy_file: File that a target's proxy runs in place of ``file``; None when it runs the same one.
        weights: Number of weights by dtype, read back from the file; empty where it was not counted.
    """

    name: str
    file: str
    takes: tuple[Port, ...]
    adds: tuple[Port, ...]
    exit_output: str | None
    precision: Precision
    macs: int | None
    macs_reason: str = ""
    parameters: int
    file_bytes: int
    operators: OperatorCount
    proxy_file: str | None = None
    weights: dict[str, int] = {}


class BatchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Batch sizes a bundle takes.

    Attributes:
        static: The only batch size its files take; None when the batch is dynamic.
        probed: Batch sizes that were run and compared before publishing.
        max: Largest batch given to the engine at once; larger ones are run in parts.
        only_size: Why no other size is taken, where the source's first axis is not proven to hold samples or the source
            runs at one size only; empty where larger batches are run in parts.
    """

    static: int | None
    probed: tuple[int, ...]
    max: int
    only_size: str = ""


class InputRange(msgspec.Struct, frozen=True, kw_only=True):
    """Smallest and largest value of an input over the calibration set."""

    low: float
    high: float


class CalibrationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The data a static quantization was calibrated on: hash, samples, range of every input."""

    sha256: str
    samples: int
    inputs: dict[str, InputRange]


class OutputParity(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one output on one set of inputs, source against bundle.

    Float outputs have distances, whole numbers (integers and booleans) an agreement.

    Attributes:
        relative_l2: ‖bundle − source‖₂ / ‖source‖₂; None for whole numbers.
        cosine: Cosine of the two, flattened; None likewise.
        max_abs: Largest absolute difference; None likewise.
        worst_slice_l2: Largest relative L2 over the slices along every axis but the batch; None without slices.
        top1_agreement: Share of rows with the same largest entry; None where it has no meaning.
        agreement: Share of the places that hold the same whole number; None for float outputs, and where no place
            could be judged.
        places: How many places were judged by agreement; None for float outputs.
    """

    output: str
    inputs: str
    samples: int
    relative_l2: float | None = None
    cosine: float | None = None
    max_abs: float | None = None
    worst_slice_l2: float | None = None
    top1_agreement: float | None = None
    agreement: float | None = None
    places: int | None = None


class ParityRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How the bundle was proven.

    Attributes:
        verified_on: ``target``, or ``proxy:ENGINE`` when another engine stood in.
        tolerance: Relative L2 that was allowed.
        loosened: True when the user loosened the tolerance.
        seed: Seed of the random inputs.
        outputs: Figures of every output on every set of inputs.
        chain_max_abs: Largest absolute difference between the stages run one after the other and the unsplit program,
            on the last exit; None where there is one stage.
    """

    verified_on: str
    tolerance: float
    loosened: bool = False
    seed: int
    outputs: tuple[OutputParity, ...]
    chain_max_abs: float | None = None


class ProviderSpec(msgspec.Struct, frozen=True, kw_only=True):
    """An execution provider a bundle runs on, with the options it is opened with.

    Attributes:
        name: The engine's name of it, e.g. ``CUDAExecutionProvider``.
        options: Options as the engine takes them.
    """

    name: str
    options: dict[str, str] = {}


class Requirements(msgspec.Struct, frozen=True, kw_only=True):
    """What the device must have.

    Attributes:
        engine: Distribution name of the engine.
        engine_version: Version the bundle was proven with.
        isa: Instruction set the quantization assumes, e.g. ``vnni``; empty for none.
        opset: ONNX opset; None where it does not apply.
        providers: Execution providers in order of preference; empty where the engine has one only.
    """

    engine: str
    engine_version: str
    isa: str = ""
    opset: int | None = None
    providers: tuple[ProviderSpec, ...] = ()


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a device has to know about a bundle.

    Attributes:
        digest: sha256 of the manifest's own bytes with this field's 64 digits set to zero.
        created_with: Version of ipj-edge and of every tool that took part.
        labels: Class names in output order; empty when not given.
        preprocessing: How an image becomes the named input; only for inputs that take images.
        unsplit: The program that computes the last exit alone, used when no early exit is wanted; None where the
            only stage is that program.
        golden_samples: Samples in ``golden.npz``.
        notes: What a reader has to know, e.g. why the batch is static.
        state: What the model keeps from one call to the next; empty for most. See `Model.reset`.
        scheme: How an int8 bundle was quantized: ``static`` (ranges of activations from calibration) or
            ``dynamic`` (found anew in each inference); None when we quantized nothing.
        keep_float: Patterns of operators that were kept in floating point on request.
    """

    schema_version: int
    digest: str
    name: str
    target: str
    precision: Precision
    created_with: dict[str, str]
    source: SourceRecord
    files: tuple[FileRecord, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    stages: tuple[StageSpec, ...]
    unsplit: StageSpec | None = None
    batch: BatchSpec
    calibration: CalibrationRecord | None = None
    parity: ParityRecord
    requires: Requirements
    labels: tuple[str, ...] = ()
    preprocessing: dict[str, Preprocessing] = {}
    golden_samples: int
    notes: tuple[str, ...] = ()
    state: tuple[StateTensor, ...] = ()
    scheme: Scheme | None = None
    keep_float: tuple[str, ...] = ()


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """An opened bundle.

    Attributes:
        path: Its folder.
        manifest: Its manifest.
        unchecked: Recorded files whose hashes were left to whoever loads them; see `ipj_edge.bundles.sealed_files`.
    """

    path: Path
    manifest: Manifest
    unchecked: frozenset[str] = frozenset()
