"""Mixed precision by accuracy: the fewest operators kept in float with which a target's int8 file meets a goal.

NNCF has such a search for OpenVINO; this one serves every target alike, for it asks only for conversions.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from ipj_edge.bundles.manifest import Bundle
from ipj_edge.conversion import ConvertRequest, convert
from ipj_edge.errors import ConfigError, ConversionError
from ipj_edge.values import Precision
from ipj_edge_compress.errors import GoalError

Try = Callable[[tuple[str, ...]], float]

# Operators with weights to quantize: by type where an engine gives it ("Gemm name", "CONV_2D:name"), else by name.
_HEAVY = re.compile(r"conv|matmul|gemm|fully_connected|linear", re.IGNORECASE)
_WITHOUT_BIAS = "/WithoutBiases"


class FloatChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What a search found.

    Attributes:
        keep_float: Operators to keep in float, by the target's names for them.
        score: Score with them in float.
        tried: Number of sets that were tried.
    """

    keep_float: tuple[str, ...]
    score: float
    tried: int


def fewest_in_float(operators: Sequence[str], attempt: Try, wanted: float) -> FloatChoice:
    """Find a small set of operators to keep in float with which the score is at least what is wanted.

    Each operator is tried alone first; then they join from the most to the least helpful until the goal is met; at
    last each is left out again if the goal is met without it.

    Args:
        operators: Operators that may be kept.
        attempt: Score of a set; the larger the better.
        wanted: The goal.

    Raises:
        GoalError: no set on the way is enough; says the best that was found.
    """
    scores: dict[frozenset[str], float] = {}

    def score(kept: Sequence[str]) -> float:
        key = frozenset(kept)
        if key not in scores:
            scores[key] = attempt(tuple(name for name in operators if name in key))
        return scores[key]

    if score(()) >= wanted:
        return FloatChoice(keep_float=(), score=score(()), tried=len(scores))
    ranked = sorted(operators, key=lambda name: -score((name,)))
    joined = (ranked[:count] for count in range(1, len(ranked) + 1))
    kept = next((names for names in joined if score(names) >= wanted), None)
    if kept is None:
        best = max(scores, key=lambda names: scores[names])
        raise GoalError(
            f"no set of operators in float reaches {wanted:.4f}; the best of {len(scores)} tried is {scores[best]:.4f} "
            f"with {', '.join(sorted(best)) or 'none'} in float"
        )
    for name in reversed(kept):
        without = [other for other in kept if other != name]
        if score(without) >= wanted:
            kept = without
    return FloatChoice(
        keep_float=tuple(name for name in operators if name in kept), score=score(kept), tried=len(scores)
    )


def convert_accurately(request: ConvertRequest, target: str, *, max_accuracy_drop: float) -> FloatChoice:
    """Search, with real conversions, the operators to keep in float for one target, and publish the bundle.

    Every attempt converts, proves and scores the int8 file in the target's own engine on the request's data.

    Args:
        request: A request with labelled data and calibration; its targets, precisions and gate are not used.
        target: The target.
        max_accuracy_drop: Largest drop of accuracy allowed against the source, 0..1.

    Raises:
        ConfigError: the request has no data.
        GoalError: the goal cannot be met with any set; says the best found.
        IpjEdgeError: a conversion failed.
    """
    if request.data is None:
        raise ConfigError("an accuracy-aware search needs labelled data")
    with tempfile.TemporaryDirectory(prefix="ipj-edge-search-") as folder:
        draft = msgspec.structs.replace(
            request, targets=(target,), into=Path(folder), force=True, max_accuracy_drop=None
        )
        operators, source = _operators(draft)

        def attempt(kept: tuple[str, ...]) -> float:
            # With all of them in float it is the source, and no int8 bundle: a place to start from, not to end at.
            return source if len(kept) == len(operators) else _accuracy(draft, kept)

        found = fewest_in_float(operators, attempt, source - max_accuracy_drop)
    if len(found.keep_float) == len(operators):
        raise GoalError(
            f"only with all {len(operators)} operators in float the accuracy of {target} drops by at most "
            f"{max_accuracy_drop:.2%}: convert it to fp32"
        )
    final = msgspec.structs.replace(
        _keeping(request, found.keep_float), targets=(target,), max_accuracy_drop=max_accuracy_drop
    )
    _convert(final)
    return found


def _operators(draft: ConvertRequest) -> tuple[list[str], float]:
    """Return the names of the operators with weights, from the float file, and the source's accuracy."""
    precision: Precision = "fp32"
    bundle, accuracy = _convert(msgspec.structs.replace(draft, precisions=(precision,)))
    listed = [name for stage in bundle.manifest.stages for name in stage.operators.float_operators]
    # onnxruntime calls an operator that it fused with an activation "fused" and its name.
    names = [name.replace(" fused ", " ") for name in listed]
    # openvino has two operators where the source has one with a bias.
    inner = {name.removesuffix(_WITHOUT_BIAS) for name in names if name.endswith(_WITHOUT_BIAS)}
    return [name for name in names if _HEAVY.search(re.split("[: ]", name)[0]) and name not in inner], accuracy[0]


def _accuracy(draft: ConvertRequest, kept: tuple[str, ...]) -> float:
    try:
        return _convert(_keeping(draft, kept))[1][1]
    except ConversionError as error:
        # An int8 file that is proven wrong scores nothing; any other failure would be the same for every set.
        if error.exit_code != 4:
            raise
        return 0.0


def _keeping(request: ConvertRequest, kept: tuple[str, ...]) -> ConvertRequest:
    options = msgspec.structs.replace(request.options, keep_float=kept)
    return msgspec.structs.replace(request, precisions=("int8",), options=options)


def _convert(request: ConvertRequest) -> tuple[Bundle, tuple[float, float]]:
    (outcome,) = convert(request)
    if outcome.error is not None:
        raise outcome.error
    if outcome.bundle is None or outcome.accuracy is None:
        raise ConfigError("the data has no labels, or no output holds scores of classes")
    return outcome.bundle, outcome.accuracy
