"""Multiply-accumulates and weights of TFLite operators, from the sizes in the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

Shape = tuple[int, ...]

# Shapes of what an operator reads (constants included, () where an optional input is absent) and of what it makes.
_Rule = Callable[[Sequence[Shape], Shape], int]

# Matrices of an LSTM among what it reads: four from the input, four from its own output, one projection
# (lstm_shared.h of TensorFlow Lite).
_LSTM_MATRICES = (1, 2, 3, 4, 5, 6, 7, 8, 16)


def _lstm(reads: Sequence[Shape], _made: Shape) -> int:
    """Count one pass of every matrix for every step of every sample, time first or batch first."""
    matrices = [reads[index] for index in _LSTM_MATRICES if index < len(reads) and reads[index]]
    return prod(reads[0][:2]) * sum(map(prod, matrices))


_RULES: Mapping[str, _Rule] = {
    # Weights: (out, height, width, in/groups).
    "CONV_2D": lambda reads, made: prod(made) * prod(reads[1][1:]),
    # Weights: (1, height, width, out).
    "DEPTHWISE_CONV_2D": lambda reads, made: prod(made) * prod(reads[1][1:3]),
    # Weights: (depth, height, width, in, out).
    "CONV_3D": lambda reads, made: prod(made) * prod(reads[1][:4]),
    # Output shape, weights (out, height, width, in), input: what one input meets.
    "TRANSPOSE_CONV": lambda reads, made: prod(reads[2]) * prod(reads[1][:3]),
    # Weights: (out, in).
    "FULLY_CONNECTED": lambda reads, made: prod(made) * reads[1][-1],
    # Weights: features (units, in), time (units, memory); one row of the input at a time.
    "SVDF": lambda reads, _made: reads[0][0] * (prod(reads[1]) + prod(reads[2])),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm,
}


# They multiply, run other graphs, or are not TFLite's own.
_NO_RULE = frozenset(
    (
        *("BIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_RNN", "CALL", "CONV_3D_TRANSPOSE"),
        *("CUSTOM", "DELEGATE", "IF", "LSTM", "RNN", "STABLEHLO_COMPOSITE", "STABLEHLO_CONVOLUTION"),
        *("STABLEHLO_DOT_GENERAL", "UNIDIRECTIONAL_SEQUENCE_RNN", "WHILE"),
    )
)


def operator_macs(name: str, reads: Sequence[Shape], made: Shape, *, left_transposed: bool = False) -> int | None:
    """Return the multiply-accumulates of an operator; None when it multiplies and there is no rule for it.

    Args:
        name: Its name in the schema, or a custom operator's own.
        reads: Shapes of what it reads, in order.
        made: Shape of the first tensor it makes.
        left_transposed: Whether a BATCH_MATMUL transposes its left operand.
    """
    if name == "BATCH_MATMUL":
        return prod(made) * reads[0][-2 if left_transposed else -1]
    if name in _RULES:
        return _RULES[name](reads, made)
    return None if name in _NO_RULE or not name.isupper() else 0


def is_weight(name: str, dtype: str) -> bool:
    """Say whether a constant that an operator reads is a weight; shapes, axes and paddings are not."""
    return dtype not in ("int32", "int64", "bool") or (dtype == "int32" and name in _RULES)
