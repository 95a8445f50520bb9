"""Whether two sets of answers are the same within a precision's tolerance: per output and per slice.

Every slice along every axis but the batch is judged on its own as well (`slices`), whole numbers by agreement
(`agreement`), and places that hold no finite number by what they hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from ipj_edge.bundles.manifest import Manifest, OutputParity
from ipj_edge.protocols import Array
from ipj_edge.runtime.agreement import Judgement, agree, holds_whole_numbers
from ipj_edge.runtime.slices import Slices, slices_of
from ipj_edge.values import Precision, TensorSpec

RELATIVE_L2: dict[Precision, float] = {"fp32": 1e-4, "fp16": 2e-2, "bf16": 2e-2, "int8": 0.15}
INT8_COSINE = 0.985
INT8_TOP1 = 0.97
EARLY_EXIT_COSINE = 0.9
INT8_SPREAD = 0.25
SLICE_FACTOR = 10.0
SLICE_FLOOR = 1e-6
# One step of a half-precision number relative to its size (10 and 7 bits of fraction): answers that differ by less
# may round to the same number.
_ROUNDING: dict[Precision, float] = {"fp32": 0.0, "fp16": 2.0**-10, "bf16": 2.0**-7, "int8": 0.0}
PROBABILITY_QUANTUM = 2 / 256
_UNLIKE = (
    "keep the operators in float that join values of such unlike ranges, and what follows them: --keep-float PATTERN, "
    "e.g. '*Concat*' (in TFLite '*CONCATENATION*')"
)
_NOT_FINITE = (
    "int8 has no infinity and no NaN: keep the operators in float that make them, and what follows them: "
    "--keep-float PATTERN, e.g. '*Where*' (in OpenVINO '*Select*', in TFLite '*SELECT*')"
)
_UNEQUAL = {
    True: "keep the operators in float that feed the comparison of scores, the last layer at least: "
    "--keep-float PATTERN",
    False: "where scores are nearly equal, add them as an output: ties are told by them; "
    "--tolerance SHARE allows that share of the places to differ",
}
SOURCE_ROUNDINGS = 2
# A slice whose spread is below two int8 steps of its own peak may be constant however well it is quantized.
INT8_OWN_STEP = 2 / 255
REAL_INPUTS = ("calibration", "data", "golden")


class Allowances(msgspec.Struct, frozen=True, kw_only=True):
    """Outputs that are held to less.

    Attributes:
        steps: Step of outputs that are integer tensors in the source already, not made so by us: two engines may
            differ by `SOURCE_ROUNDINGS` of them, and a slice that moves no further in the source may be constant.
        early_exits: Outputs of exits before the last of an int8 bundle: it decides by its own answers there, which
            only have to point the same way as the source's (`EARLY_EXIT_COSINE`).
        same_numbers: Whether the source computes in int8 itself: whole numbers are judged on drawn inputs too.
    """

    steps: Mapping[str, float] = {}
    early_exits: frozenset[str] = frozenset()
    same_numbers: bool = False


class _Distance(NamedTuple):
    relative_l2: float
    cosine: float
    max_abs: float
    top1: float | None


class ParityCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one output, one line for every check it failed, and for every check it was excused from.

    Attributes:
        remedies: What to do about the failures, in the words of a command line.
    """

    figures: OutputParity
    failures: tuple[str, ...]
    excused: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()


def compare(
    specs: Sequence[TensorSpec],
    reference: Mapping[str, Array],
    candidate: Mapping[str, Array],
    *,
    precision: Precision,
    inputs: str,
    tolerance: float | None = None,
    judge_values: bool = True,
    allowances: Allowances | None = None,
) -> tuple[ParityCheck, ...]:
    """Compare all outputs of a source with those of a bundle on the same inputs.

    Args:
        specs: The model's outputs.
        reference: The source's outputs by name.
        candidate: The bundle's outputs by name.
        precision: Precision of the bundle: decides the tolerance.
        inputs: What the inputs were, for the messages, e.g. ``calibration`` or ``random``.
        tolerance: Relative L2 allowed instead of the precision's own.
        judge_values: False judges names, shapes, dtypes and NaN only, and leaves the values unjudged (static int8
            outside its calibrated range).
        allowances: Outputs that are held to less; None for none.
    """
    if set(reference) != set(candidate):
        missing = f"outputs differ: the source has {sorted(reference)}, the bundle {sorted(candidate)}"
        return tuple(ParityCheck(figures=_no_figures(spec, inputs), failures=(missing,)) for spec in specs[:1])
    allowed, limit = allowances or Allowances(), RELATIVE_L2[precision] if tolerance is None else tolerance
    wanted = {name: np.asarray(value) for name, value in reference.items()}
    given = {name: np.asarray(value) for name, value in candidate.items()}
    compared = []
    for spec in specs:
        other = _otherwise(spec, wanted[spec.name], given[spec.name], inputs)
        if other is None and holds_whole_numbers(wanted[spec.name]):
            by = _by(precision, inputs, tolerance, judge_values, allowed)
            other = _compare_whole_numbers(spec, wanted, given, inputs, by)
        compared.append(
            other
            or _compare_output(
                spec, wanted[spec.name], given[spec.name], precision, inputs, limit, judge_values, allowed
            )
        )
    return tuple(compared)


def allowances_of(manifest: Manifest) -> Allowances:
    """Return the outputs of a bundle that are held to less than its precision promises."""
    if manifest.precision != "int8":
        return Allowances()
    ports = [port for stage in manifest.stages for port in stage.adds]
    own = {port.name: port.quantization.scale for port in ports if port.quantization is not None}
    return Allowances(
        steps=own if manifest.scheme is None else {},
        early_exits=frozenset(str(stage.exit_output) for stage in manifest.stages[:-1]),
        same_numbers=manifest.scheme is None,
    )


def _compare_output(
    spec: TensorSpec,
    reference: Array,
    candidate: Array,
    precision: Precision,
    inputs: str,
    limit: float,
    judge: bool,
    allowances: Allowances,
) -> ParityCheck:
    step = allowances.steps.get(spec.name, 0.0)
    where = f"'{spec.name}' on {inputs} inputs"
    want, got = reference.astype(np.float64), candidate.astype(np.float64)
    if (np.isfinite(want) & ~np.isfinite(got)).any():
        return _failed(spec, inputs, f"{where}: NaN or infinity, where the source is finite")
    lost = _lost_kinds(want, got)
    if lost and judge:
        return _failed(spec, inputs, f"{where}: {lost}", (_NOT_FINITE,) if precision == "int8" else ())
    finite = np.isfinite(want) & np.isfinite(got)
    want, got = np.where(finite, want, 0.0), np.where(finite, got, 0.0)
    slices = slices_of(want, got, spec.batch_axis)
    distance = _Distance(
        _relative_l2(want, got), _cosine(want, got), float(np.abs(want - got).max(initial=0.0)), _top1(spec, want, got)
    )
    figures = OutputParity(
        output=spec.name,
        inputs=inputs,
        samples=_samples(spec, reference),
        relative_l2=distance.relative_l2,
        cosine=distance.cosine,
        max_abs=distance.max_abs,
        worst_slice_l2=max((float(along.l2.max()) for along in slices), default=None),
        top1_agreement=distance.top1,
    )
    failures: list[str] = []
    remedies: list[str] = []
    if judge and distance.max_abs > SOURCE_ROUNDINGS * step * (1 + 1e-6):
        dead = _judge_spread(where, slices, precision, _least_spread(spec, want, step))
        worst = (
            _judge_int8(where, distance, inputs, limit)
            if precision == "int8"
            else _judge_slices(where, slices, want, limit)
        )
        failures = [*dead, *_judge_size(where, distance, limit), *worst]
        remedies = [_UNLIKE] if dead and precision == "int8" else []
    if spec.name in allowances.early_exits and failures and distance.cosine >= EARLY_EXIT_COSINE:
        return ParityCheck(figures=figures, failures=(), excused=tuple(failures))
    return ParityCheck(figures=figures, failures=tuple(failures), remedies=tuple(remedies))


def _otherwise(spec: TensorSpec, reference: Array, candidate: Array, inputs: str) -> ParityCheck | None:
    """Return the failure of an output of another shape or dtype; None where both are the source's."""
    where = f"'{spec.name}' on {inputs} inputs"
    if reference.shape != candidate.shape:
        return _failed(spec, inputs, f"{where}: shape {candidate.shape}, the source gives {reference.shape}")
    if reference.dtype != candidate.dtype:
        return _failed(spec, inputs, f"{where}: dtype {candidate.dtype}, the source gives {reference.dtype}")
    return None


def _by(
    precision: Precision, inputs: str, tolerance: float | None, judge_values: bool, allowed: Allowances
) -> Judgement:
    own = inputs not in REAL_INPUTS and inputs != "random"
    real = precision != "int8" or inputs in REAL_INPUTS or allowed.same_numbers or own
    # What a precision allows of float answers is no loosening of whole numbers.
    loosened = None if tolerance is None or (precision == "int8" and tolerance <= RELATIVE_L2["int8"]) else tolerance
    return Judgement(precision, judged=judge_values and real, own=own, tolerance=loosened)


def _compare_whole_numbers(
    spec: TensorSpec, reference: Mapping[str, Array], candidate: Mapping[str, Array], inputs: str, by: Judgement
) -> ParityCheck:
    found = agree(spec.name, reference, candidate, by._replace(batch_axis=spec.batch_axis))
    figures = OutputParity(
        output=spec.name,
        inputs=inputs,
        samples=_samples(spec, reference[spec.name]),
        agreement=found.share if found.places else None,
        places=found.places,
    )
    failures = (f"'{spec.name}' on {inputs} inputs: {found.failure}",) if found.failure else ()
    return ParityCheck(figures=figures, failures=failures, remedies=(_UNEQUAL[by.precision == "int8"],) * len(failures))


def _samples(spec: TensorSpec, values: Array) -> int:
    return int(values.shape[spec.batch_axis]) if spec.batch_axis is not None else 1


def _lost_kinds(want: Array, got: Array) -> str:
    """Say where the source holds NaN or infinity and the bundle something else; or an empty text."""
    for kind, held in (
        ("-inf", np.isneginf),
        ("inf", np.isposinf),
        ("NaN", np.isnan),
    ):
        lost = held(want) & ~held(got)
        if lost.any():
            first = got[tuple(axis[0] for axis in np.nonzero(lost))]
            return (
                f"{int(lost.sum())} values are {kind} in the source, and not in the bundle (the first is {first:.3g})"
            )
    return ""


def _judge_size(where: str, distance: _Distance, limit: float) -> list[str]:
    if distance.relative_l2 <= limit:
        return []
    return [f"{where}: relative L2 {distance.relative_l2:.3g}, at most {limit:g} is allowed"]


def _judge_slices(where: str, slices: Sequence[Slices], want: Array, limit: float) -> list[str]:
    """Report the worst slice of all axes that is too far from the source's."""
    worst: tuple[float, str] | None = None
    floor = SLICE_FLOOR * float(np.ptp(want)) if want.size else 0.0
    for along in slices:
        bad = np.flatnonzero((along.l2 > SLICE_FACTOR * limit) & (along.rms > floor))
        index = int(bad[along.l2[bad].argmax()]) if bad.size else -1
        if bad.size and (worst is None or along.l2[index] > worst[0]):
            worst = float(along.l2[index]), along.name(index)
    if worst is None:
        return []
    return [f"{where}: {worst[1]} has relative L2 {worst[0]:.3g}, at most {SLICE_FACTOR * limit:g}"]


def _judge_int8(where: str, distance: _Distance, inputs: str, limit: float) -> list[str]:
    failures = []
    if distance.cosine < INT8_COSINE and limit <= RELATIVE_L2["int8"]:
        failures.append(f"{where}: cosine {distance.cosine:.5f}, at least {INT8_COSINE} is needed")
    if distance.top1 is not None and inputs in ("calibration", "golden") and distance.top1 < INT8_TOP1:
        failures.append(f"{where}: top-1 agrees on {distance.top1:.1%}, at least {INT8_TOP1:.0%} is needed")
    return failures


def _least_spread(spec: TensorSpec, want: Array, step: float) -> float:
    """Return the spread that a slice of an output may lose whatever its peak."""
    # A class that is never likely stays below one step of an int8 probability: that is not a dead slice.
    floor = PROBABILITY_QUANTUM if spec.meaning == "probabilities" or _adds_up_to_one(want, spec.batch_axis) else 0.0
    return max(floor, SOURCE_ROUNDINGS * step * (1 + 1e-6))


def _adds_up_to_one(want: Array, batch_axis: int | None) -> bool:
    """Say whether an output of three axes or more holds probabilities of classes, as label maps' scores do."""
    if want.ndim < 3 or not want.size or want.min() < 0 or want.max() > 1 + 1e-3:
        return False
    axes = [axis for axis in range(want.ndim) if axis != batch_axis and want.shape[axis] > 1]
    return any(np.allclose(want.sum(axis=axis), 1.0, atol=1e-3) for axis in axes)


def _judge_spread(where: str, slices: Sequence[Slices], precision: Precision, least: float) -> list[str]:
    """Report slices that are constant in the bundle alone, and in int8 the one that kept least of its spread.

    Of several axes the one is named along which fewest slices are dead: it tells them apart.
    """
    dead, thin = [], []
    for along in slices:
        lively = along.want_spread > np.maximum(_still_share(along, precision) * along.want_peak, least)
        kept = np.divide(along.got_spread, along.want_spread, out=np.ones_like(along.want_spread), where=lively)
        still = np.flatnonzero(kept == 0.0)
        if still.size:
            shown = ", ".join(str(int(index)) for index in still[:5]) + (", …" if still.size > 5 else "")
            share = still.size / len(kept)
            dead.append((share, f"{where}: slice {shown} of {along.axis_name} is constant, in the source it is not"))
        moving = np.where(kept > 0.0, kept, 1.0)
        worst = int(moving.argmin())
        if precision == "int8" and moving[worst] < INT8_SPREAD:
            line = f"{where}: {along.name(worst)} keeps {moving[worst]:.0%} of its spread"
            thin.append((float(moving[worst]), line))
    return [min(found)[1] for found in (dead, thin) if found]


def _still_share(along: Slices, precision: Precision) -> float:
    """Return the share of its peak that a slice may move by in the source and yet be constant in the bundle.

    In int8 that is two of its own steps, unless no slice moves further: then the output would no longer hang on the
    input at all.
    """
    if precision != "int8":
        return max(SLICE_FLOOR, _ROUNDING[precision])
    drowned = bool((along.want_spread <= INT8_OWN_STEP * along.want_peak).all())
    return SLICE_FLOOR if drowned else INT8_OWN_STEP


def _relative_l2(want: Array, got: Array) -> float:
    size, error = float(np.linalg.norm(want)), float(np.linalg.norm(got - want))
    if size > 0:
        return error / size
    return 0.0 if error == 0 else float(np.finfo(np.float64).max)


def _cosine(want: Array, got: Array) -> float:
    product = float(np.linalg.norm(want)) * float(np.linalg.norm(got))
    if product == 0:
        return 1.0 if not want.any() and not got.any() else 0.0
    return min(1.0, float(np.vdot(want, got)) / product)


def _top1(spec: TensorSpec, want: Array, got: Array) -> float | None:
    if spec.meaning not in ("logits", "probabilities") or want.ndim != 2 or want.shape[1] < 2:
        return None
    return float((want.argmax(axis=1) == got.argmax(axis=1)).mean())


def _no_figures(spec: TensorSpec, inputs: str) -> OutputParity:
    return OutputParity(output=spec.name, inputs=inputs, samples=0)


def _failed(spec: TensorSpec, inputs: str, failure: str, remedies: tuple[str, ...] = ()) -> ParityCheck:
    return ParityCheck(figures=_no_figures(spec, inputs), failures=(failure,), remedies=remedies)
