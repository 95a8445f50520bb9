"""Whether two sets of answers are the same within a precision's tolerance: per output and per slice.

A whole-tensor cosine hides dead slices: quantizing ``concat(640·x, x)`` scores 0.999997 while its small half is
zero. So every slice of the last axis is judged on its own as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
import numpy as np

from ipj_edge.bundles.manifest import Manifest, OutputParity
from ipj_edge.protocols import Array
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
SOURCE_ROUNDINGS = 2


class Allowances(msgspec.Struct, frozen=True, kw_only=True):
    """Outputs that are held to less.

    Attributes:
        steps: Step of outputs that are integer tensors in the source already, not made so by us: two engines may
            differ by `SOURCE_ROUNDINGS` of them, and a slice that moves no further in the source may be constant.
        early_exits: Outputs of exits before the last of an int8 bundle: it decides by its own answers there, which
            only have to point the same way as the source's (`EARLY_EXIT_COSINE`).
    """

    steps: Mapping[str, float] = {}
    early_exits: frozenset[str] = frozenset()


class ParityCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one output, one line for every check it failed, and for every check it was excused from."""

    figures: OutputParity
    failures: tuple[str, ...]
    excused: tuple[str, ...] = ()


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
    return tuple(
        _compare_output(
            spec, np.asarray(reference[spec.name]), np.asarray(candidate[spec.name]), precision, inputs,
            tolerance if tolerance is not None else RELATIVE_L2[precision], judge_values, allowances or Allowances(),
        )
        for spec in specs
    )  # fmt: skip


def allowances_of(manifest: Manifest) -> Allowances:
    """Return the outputs of a bundle that are held to less than its precision promises."""
    if manifest.precision != "int8":
        return Allowances()
    ports = [port for stage in manifest.stages for port in stage.adds]
    own = {port.name: port.quantization.scale for port in ports if port.quantization is not None}
    return Allowances(
        steps=own if manifest.scheme is None else {},
        early_exits=frozenset(str(stage.exit_output) for stage in manifest.stages[:-1]),
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
    if reference.shape != candidate.shape:
        return _failed(spec, inputs, f"{where}: shape {candidate.shape}, the source gives {reference.shape}")
    if reference.dtype != candidate.dtype:
        return _failed(spec, inputs, f"{where}: dtype {candidate.dtype}, the source gives {reference.dtype}")
    want, got = reference.astype(np.float64), candidate.astype(np.float64)
    if (np.isfinite(want) & ~np.isfinite(got)).any():
        return _failed(spec, inputs, f"{where}: NaN or infinity, where the source is finite")
    finite = np.isfinite(want) & np.isfinite(got)
    want, got = np.where(finite, want, 0.0), np.where(finite, got, 0.0)
    slices = _slice_figures(want, got, step)
    figures = OutputParity(
        output=spec.name,
        inputs=inputs,
        samples=reference.shape[spec.batch_axis] if spec.batch_axis is not None else 1,
        relative_l2=_relative_l2(want, got),
        cosine=_cosine(want, got),
        max_abs=float(np.abs(want - got).max(initial=0.0)),
        worst_slice_l2=float(slices["l2"].max()) if slices else None,
        top1_agreement=_top1(spec, want, got),
    )
    failures: list[str] = []
    if judge and figures.max_abs > SOURCE_ROUNDINGS * step * (1 + 1e-6):
        failures += _constant_slices(where, spec, slices, _ROUNDING[precision]) if slices else []
        judge_int8 = precision == "int8"
        failures += _judge_size(where, figures, limit)
        failures += (
            _judge_int8(where, spec, figures, slices, limit) if judge_int8 else _judge_slices(where, slices, limit)
        )
    if spec.name in allowances.early_exits and failures and figures.cosine >= EARLY_EXIT_COSINE:
        return ParityCheck(figures=figures, failures=(), excused=tuple(failures))
    return ParityCheck(figures=figures, failures=tuple(failures))


def _judge_size(where: str, figures: OutputParity, limit: float) -> list[str]:
    if figures.relative_l2 <= limit:
        return []
    return [f"{where}: relative L2 {figures.relative_l2:.3g}, at most {limit:g} is allowed"]


def _judge_slices(where: str, slices: dict[str, Any], limit: float) -> list[str]:
    if not slices:
        return []
    bad = np.flatnonzero((slices["l2"] > SLICE_FACTOR * limit) & (slices["rms"] > SLICE_FLOOR * slices["range"]))
    if not bad.size:
        return []
    worst = int(bad[slices["l2"][bad].argmax()])
    return [
        f"{where}: slice {worst} of the last axis has relative L2 {slices['l2'][worst]:.3g}, "
        f"at most {SLICE_FACTOR * limit:g}"
    ]


def _judge_int8(where: str, spec: TensorSpec, figures: OutputParity, slices: dict[str, Any], limit: float) -> list[str]:
    failures = []
    if figures.cosine < INT8_COSINE and limit <= RELATIVE_L2["int8"]:
        failures.append(f"{where}: cosine {figures.cosine:.5f}, at least {INT8_COSINE} is needed")
    judged_top1 = figures.top1_agreement is not None and figures.inputs in ("calibration", "golden")
    if judged_top1 and cast(float, figures.top1_agreement) < INT8_TOP1:
        failures.append(f"{where}: top-1 agrees on {figures.top1_agreement:.1%}, at least {INT8_TOP1:.0%} is needed")
    if slices:
        thin = np.flatnonzero(_has_spread(spec, slices) & (slices["got_spread"] < INT8_SPREAD * slices["want_spread"]))
        if thin.size:
            failures.append(
                f"{where}: slice {int(thin[0])} of the last axis keeps "
                f"{slices['got_spread'][thin[0]] / slices['want_spread'][thin[0]]:.0%} of its spread"
            )
    return failures


def _constant_slices(where: str, spec: TensorSpec, slices: dict[str, Any], rounding: float) -> list[str]:
    dead = np.flatnonzero(_has_spread(spec, slices, rounding) & (slices["got_spread"] == 0.0))
    if not dead.size:
        return []
    shown = ", ".join(str(int(index)) for index in dead[:5]) + (", …" if dead.size > 5 else "")
    return [f"{where}: slice {shown} of the last axis is constant, in the source it is not"]


def _has_spread(spec: TensorSpec, slices: dict[str, Any], rounding: float = 0.0) -> Any:
    # A class that is never likely stays below one step of an int8 probability: that is not a dead slice.
    floor = PROBABILITY_QUANTUM if spec.meaning == "probabilities" else 0.0
    floor = max(floor, SOURCE_ROUNDINGS * slices["step"] * (1 + 1e-6))
    return slices["want_spread"] > np.maximum(max(SLICE_FLOOR, rounding) * slices["want_peak"], floor)


def _slice_figures(want: Array, got: Array, step: float) -> dict[str, Any]:
    """Return figures of every slice of the last axis; empty where there is only one value a sample."""
    if want.ndim < 2 or want.size == 0:
        return {}
    want, got = want.reshape(-1, want.shape[-1]), got.reshape(-1, got.shape[-1])
    error = np.linalg.norm(got - want, axis=0)
    size = np.linalg.norm(want, axis=0)
    return {
        "l2": np.divide(error, size, out=np.where(error > 0, np.inf, 0.0), where=size > 0),
        "rms": error / np.sqrt(len(want)),
        "range": float(np.ptp(want)),
        "step": step,
        "want_spread": np.ptp(want, axis=0),
        "got_spread": np.ptp(got, axis=0),
        "want_peak": np.abs(want).max(axis=0),
    }


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
    return OutputParity(output=spec.name, inputs=inputs, samples=0, relative_l2=1.0, cosine=0.0, max_abs=0.0)


def _failed(spec: TensorSpec, inputs: str, failure: str) -> ParityCheck:
    return ParityCheck(figures=_no_figures(spec, inputs), failures=(failure,))
