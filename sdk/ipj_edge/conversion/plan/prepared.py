"""What every bundle of one request is built from."""

from __future__ import annotations

import msgspec

from ipj_edge.conversion.plan.reference import Reference
from ipj_edge.conversion.plan.request import ConvertRequest
from ipj_edge.protocols import MacCount, Source
from ipj_edge.samples.data import Samples
from ipj_edge.values import ConversionOptions, TensorSpec


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """An opened source with its data and its answers.

    Attributes:
        request: What the user asked for.
        source: The opened source.
        inputs: Its inputs, with the whole numbers each takes.
        calibration: Checked calibration set.
        data: Data of the accuracy gate.
        reference: What the source answers.
        counted: Multiply-accumulates and weights.
        options: How to convert, as far as it is decided: ``split_at`` names outputs, empty for a plain model.
        warnings: What the user should know about the data.
        notes: What a reader of the manifest has to know about the inputs.
    """

    request: ConvertRequest
    source: Source
    inputs: tuple[TensorSpec, ...]
    calibration: Samples | None
    data: Samples | None
    reference: Reference
    counted: MacCount
    options: ConversionOptions
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
