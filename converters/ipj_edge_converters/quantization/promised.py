"""What a precision promises, held against the weights that were read back from the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ipj_edge.bundles.manifest import OperatorCount
from ipj_edge.errors import UnsupportedError

_WIDE = ("float32", "float64")


def check_half(weights: Mapping[str, int], *, operators_too: bool = False) -> float:
    """Return the share of a float16 file's weights that are stored in float16.

    Args:
        weights: Number of weights by dtype, read back from the file.
        operators_too: The file's operators compute in float16, whatever its weights are stored in.

    Raises:
        UnsupportedError: none is: the file would be float32 under another name.
    """
    half, wide = weights.get("float16", 0), sum(weights.get(dtype, 0) for dtype in _WIDE)
    if not half and not operators_too:
        what = (
            f"all {wide:,} weights stay in float32" if wide else "the model has no weights to store in half the bytes"
        )
        raise UnsupportedError(f"fp16 changes nothing in this model: {what}; convert it to fp32")
    return half / (half + wide) if half else 0.0 if wide else 1.0


def check_integers(operators: OperatorCount, keep_float: Sequence[str]) -> None:
    """Refuse an int8 file in which every operator that computes does so in floating point.

    Raises:
        UnsupportedError: it is one.
    """
    if operators.total > len(operators.float_operators) or not operators.total:
        return
    if keep_float:
        raise UnsupportedError("--keep-float leaves nothing to quantize: keep fewer operators, or convert to fp32")
    raise UnsupportedError(
        f"int8 was asked for, but all {operators.total} operators of the file compute in floating point; nothing in "
        "this model can be quantized so: convert it to fp32"
    )


def share_note(share: float) -> tuple[str, ...]:
    """Say which part of the weights is stored in float16, where it is not all of them."""
    return () if share >= 1 else (f"{share:.1%} of the weights are stored in float16; the rest stays float32",)
