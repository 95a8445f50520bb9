"""``--stage-precision auto``: measure every stage at fp32 and at int8 on this machine, keep the cheaper."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from ipj_edge import child
from ipj_edge.conversion.build import build
from ipj_edge.conversion.plan.prepared import Prepared
from ipj_edge.errors import ConfigError, EngineCrashError
from ipj_edge.values import StagePrecision

# int8 is smaller: float has to be this much quicker to be worth its bytes.
_MARGIN = 0.95
_TIMEOUT_S = 600.0


def with_stage_precisions(prepared: Prepared, target: str, progress: Callable[[str], None]) -> Prepared:
    """Return what int8 bundles are built from, the precision of every stage decided.

    Raises:
        ConfigError: precisions for a model with one exit, or not among fp32 and int8.
        ConversionError: a bundle to measure could not be built.
    """
    wanted = prepared.options.stage_precisions
    if not wanted:
        return prepared
    if not prepared.options.split_at:
        raise ConfigError("--stage-precision needs a model with several exits (--split-at)")
    if wanted == ("auto",):
        whole = _with_precisions(prepared, ())
        return _with_precisions(prepared, _measured(whole, target, progress))
    if not set(wanted) <= {"fp32", "int8"}:
        raise ConfigError(f"--stage-precision {','.join(wanted)}: expected fp32 or int8 for every stage, or auto")
    if len(wanted) != len(prepared.options.split_at):
        raise ConfigError(
            f"--stage-precision has {len(wanted)} precisions for a model with {len(prepared.options.split_at)} exits: "
            "give one a stage, by depth"
        )
    return prepared


def _with_precisions(prepared: Prepared, precisions: tuple[StagePrecision, ...]) -> Prepared:
    options = msgspec.structs.replace(prepared.options, stage_precisions=precisions)
    return msgspec.structs.replace(prepared, options=options)


def _measured(prepared: Prepared, target: str, progress: Callable[[str], None]) -> tuple[StagePrecision, ...]:
    times: dict[str, list[float]] = {}
    for precision in ("fp32", "int8"):
        progress(f"{target}: measuring every stage at {precision}")
        with tempfile.TemporaryDirectory(prefix="ipj-edge-stages-") as folder:
            into = Path(folder) / "stages"
            into.mkdir()
            build(prepared, "stages", target, precision, into, lambda _text: None)
            times[precision] = _stage_seconds(into, target)
    pairs = zip(times["fp32"], times["int8"], strict=True)
    return tuple("fp32" if full < _MARGIN * small else "int8" for full, small in pairs)


def _stage_seconds(bundle: Path, target: str) -> list[float]:
    """Return the seconds of every stage, measured in a child: the bundle is not published yet."""
    try:
        ran = child.run("ipj_edge.conversion.stage_times", bundle, timeout_s=_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise EngineCrashError(target, -9, f"the stages were not timed in {_TIMEOUT_S:g} s") from error
    if ran.returncode != 0:
        raise EngineCrashError(target, ran.returncode, child.last_line(ran.stderr))
    found: list[float] = json.loads(ran.stdout)
    return found
