"""Stages of different precision: which operators of the whole model stay in floating point.

The whole model is quantized once, without the operators of the stages that stay float, and cut afterwards; so the
boundaries between int8 and float are those the quantizer itself puts there.
"""

from __future__ import annotations

from collections.abc import Sequence

from ipj_edge.protocols import ConversionTask


def only_in_float(task: ConversionTask, names: Sequence[Sequence[str]]) -> frozenset[str]:
    """Return the names that stages kept float have and the others have not (constants are in several)."""
    pairs = list(zip(task.options.stage_precisions, names, strict=True))
    quantized = {name for precision, found in pairs if precision != "fp32" for name in found}
    return frozenset(name for precision, found in pairs if precision == "fp32" for name in found) - quantized
