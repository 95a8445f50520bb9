"""The child of a trial: ``python -m ipj_edge.conversion.prove.trial_child BUNDLE TARGET QUESTION ANSWER``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ipj_edge.bundles.bundle import open_bundle
from ipj_edge.bundles.manifest import Bundle
from ipj_edge.conversion.prove.trial import TrialReport
from ipj_edge.errors import IpjEdgeError
from ipj_edge.protocols import Array
from ipj_edge.runtime.model import Model, open_model
from ipj_edge.runtime.programs import open_all
from ipj_edge.values import Settings

# JSON has no infinity.
_LARGEST = float(np.finfo(np.float64).max)

Sets = dict[str, dict[str, Any]]


def main(folder: str, target: str, question: Path, answer: Path) -> int:
    """Run the sets in a question through a bundle on a target; write the answers, or what was raised."""
    report = answer.with_suffix(".json")
    try:
        bundle, sets = open_bundle(folder), _sets(question)
        with Model(bundle.manifest, open_all(bundle, Settings(), on=target), Settings()) as model:
            answers = {name: model.run_every_output(feeds) for name, feeds in sets.items()}
            effective = model.effective
        told = TrialReport(effective=effective, chain_max_abs=_chain_max_abs(bundle, target, sets, answers))
        np.savez(answer.with_suffix(".npz"), **_flat(answers))
        report.write_bytes(msgspec.json.encode(told))
    except IpjEdgeError as error:
        report.write_text(json.dumps({"kind": type(error).__name__, "message": str(error)}))
        return 1
    return 0


def _sets(question: Path) -> Sets:
    sets: Sets = {}
    with np.load(question, allow_pickle=False) as file:
        for key in file.files:
            name, _, tensor = key.partition("/")
            sets.setdefault(name, {})[tensor] = file[key]
    return sets


def _flat(answers: Sets) -> dict[str, Any]:
    return {f"{name}/{key}": value for name, outputs in answers.items() for key, value in outputs.items()}


def _chain_max_abs(bundle: Bundle, target: str, sets: Sets, answers: Sets) -> float | None:
    """Return how far the stages are from the unsplit program, on the last exit; None for a plain model."""
    if len(bundle.manifest.stages) == 1:
        return None
    with open_model(bundle, Settings(), exits="off", on=target) as whole:
        worst = 0.0
        for name, feeds in sets.items():
            for key, value in whole.run_every_output(feeds).items():
                worst = max(worst, gap(value, answers[name][key]))
    return worst


def gap(one: Array, other: Array) -> float:
    """Return the largest difference of two answers; NaN or infinity in one of them alone is the largest there is."""
    one, other = one.astype(np.float64), other.astype(np.float64)
    with np.errstate(invalid="ignore"):
        away = np.where((one == other) | (np.isnan(one) & np.isnan(other)), 0.0, np.abs(one - other))
    return float(np.nan_to_num(away, nan=_LARGEST, posinf=_LARGEST).max(initial=0.0))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])))
