"""Activation ranges that quantization-aware training gave a model."""

from __future__ import annotations

from ipj_edge.conversion.plan.prepared import Prepared
from ipj_edge.errors import DataError
from ipj_edge.protocols import RangedSource
from ipj_edge.samples.data import digest
from ipj_edge.values import TrainedRanges


def trained_ranges(prepared: Prepared) -> TrainedRanges | None:
    """Return the trained ranges asked for, else of the source; None where there are none.

    Raises:
        DataError: they were recorded with other calibration samples, by which no place could be found again.
    """
    source = prepared.source
    ranges = prepared.options.ranges or (source.ranges if isinstance(source, RangedSource) else None)
    if ranges is None or prepared.calibration is None:
        return ranges
    if digest(prepared.calibration) != ranges.calibration_sha256:
        raise DataError(
            f"'{source.file}' has trained activation ranges, which belong to the calibration samples of its training: "
            f"give those with --calibration (sha256 {ranges.calibration_sha256[:12]}…)"
        )
    return ranges
