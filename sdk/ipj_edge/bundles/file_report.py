"""What a model file says of itself, without a bundle and without running it."""

from __future__ import annotations

import msgspec

from ipj_edge.bundles.manifest import StateTensor
from ipj_edge.values import Quantization


class FileTensor(msgspec.Struct, frozen=True, kw_only=True):
    """An input or output of a file; a dynamic size is its name, or ``?``."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    quantization: Quantization | None = None


class FileOperator(msgspec.Struct, frozen=True, kw_only=True):
    """An operator of a file.

    Attributes:
        name: Its name, or that of the first tensor it makes.
        type: The format's name of the operator.
        version: Version of the operator the file asks for; None where the format has none.
        shape: Sizes of what it makes; None where the file does not say.
        dtype: numpy dtype of what it makes; empty where the file does not say.
        macs: Multiply-accumulates of one sample; None where they were not counted.
    """

    name: str
    type: str
    version: int | None = None
    shape: tuple[int | str, ...] | None = None
    dtype: str = ""
    macs: int | None = None


class FileReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was read from a file.

    Attributes:
        file: Its name.
        kind: Its format, e.g. ``tflite``.
        format_version: Version of the format, e.g. an opset.
        size_bytes: Bytes of the file and of what belongs to it.
        sha256: Hash of the file.
        inputs: What it takes.
        outputs: What it makes.
        operators: Every operator, in the order of the file.
        computing: Operators that compute; None where that could not be read.
        float_operators: Names of those that compute in floating point.
        custom_operators: Operators that the format does not define.
        macs: Multiply-accumulates of one sample; None with a reason.
        macs_reason: Why macs is None.
        parameters: Number of weights.
        weights: Number of weights by dtype; empty where only their number is known.
        state: What it keeps from one inference to the next.
        dynamic: Sizes that the file leaves open, as ``input: axis``.
        notes: What else a reader has to know.
    """

    file: str
    kind: str
    format_version: str
    size_bytes: int
    sha256: str
    inputs: tuple[FileTensor, ...]
    outputs: tuple[FileTensor, ...]
    operators: tuple[FileOperator, ...]
    computing: int | None
    float_operators: tuple[str, ...]
    custom_operators: tuple[str, ...] = ()
    macs: int | None
    macs_reason: str = ""
    parameters: int
    weights: dict[str, int] = {}
    state: tuple[StateTensor, ...] = ()
    dynamic: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
