"""Run a built bundle in a child process: a broken model can kill its engine, and must not kill us."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ipj_edge import child, errors
from ipj_edge.errors import ConversionError, EngineCrashError, IpjEdgeError
from ipj_edge.protocols import Array
from ipj_edge.samples.data import Samples
from ipj_edge.values import EffectiveSettings

TIMEOUT_S = 900.0


class TrialResult(msgspec.Struct, frozen=True, kw_only=True):
    """What the child answered.

    Attributes:
        answers: Outputs by set and name.
        effective: How every stage ran.
        chain_max_abs: Largest difference between the stages and the unsplit program; None for a plain model.
    """

    answers: dict[str, dict[str, Any]]
    effective: tuple[EffectiveSettings, ...]
    chain_max_abs: float | None = None


class TrialReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the child writes beside the answers; see `TrialResult`."""

    effective: tuple[EffectiveSettings, ...]
    chain_max_abs: float | None = None


def run_trial(bundle: Path, target: str, sets: Mapping[str, Samples], scratch: Path) -> TrialResult:
    """Load a bundle in a child process and run every set of inputs through it.

    Args:
        bundle: Folder of the bundle.
        target: Name of the target to run it on: its own, or one that stands in for it.
        sets: Inputs by name of the set.
        scratch: Folder for the files exchanged with the child.

    Raises:
        EngineCrashError: the child died or did not end.
        IpjEdgeError: what the child raised.
    """
    question, answer = scratch / "question.npz", scratch / "answer"
    arrays = {f"{name}/{key}": value for name, group in sets.items() for key, value in group.arrays.items()}
    np.savez(question, **arrays)
    limited = child.limits(TIMEOUT_S)
    try:
        ran = child.run(
            "ipj_edge.conversion.prove.trial_child", bundle, target, question, answer,
            timeout_s=TIMEOUT_S, limited=limited,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise EngineCrashError(target, -9, f"no answer in {TIMEOUT_S:g} s") from error
    report = answer.with_suffix(".json")
    if ran.returncode != 0 and report.exists():
        raise _raised(json.loads(report.read_text()))
    if ran.returncode != 0:
        detail = child.why(ran.returncode, ran.stderr, limited) or child.last_line(ran.stderr)
        raise EngineCrashError(target, ran.returncode, detail)
    told = msgspec.json.decode(report.read_bytes(), type=TrialReport)
    with np.load(answer.with_suffix(".npz"), allow_pickle=False) as file:
        answers = _by_set({name: file[name] for name in file.files})
    return TrialResult(answers=answers, effective=told.effective, chain_max_abs=told.chain_max_abs)


def _by_set(arrays: Mapping[str, Array]) -> dict[str, dict[str, Array]]:
    grouped: dict[str, dict[str, Array]] = {}
    for name, value in arrays.items():
        group, _, key = name.partition("/")
        grouped.setdefault(group, {})[key] = value
    return grouped


def _raised(report: dict[str, str]) -> IpjEdgeError:
    """Make the child's error again: the same class where it takes a message, else a ConversionError."""
    kind = getattr(errors, report["kind"], None)
    error = ConversionError(report["message"])
    if isinstance(kind, type) and issubclass(kind, IpjEdgeError) and kind.__init__ is IpjEdgeError.__init__:
        error = kind(report["message"])  # type: ignore[assignment]
    # A bundle we have just built that its own engine refuses is a wrong conversion, not a damaged bundle.
    return ConversionError(report["message"]) if isinstance(error, errors.BundleError) else error
