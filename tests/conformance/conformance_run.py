"""Runs the whole conformance suite and writes what came of it: ``make conformance``.

python tests/conformance/conformance_run.py --report docs/conformance.md [--json all.json] [--only nodes]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from conformance_cases import TARGETS, write_node_cases
from conformance_pool import Case, run_all

ENGINES = (*TARGETS, "tflite-cpu")
PACKAGES = ("onnx", "onnxruntime", "openvino", "ai-edge-litert", "litert-torch", "torch", "transformers")
# Outcomes in the order of the tables; the first two of the second line must not happen.
OUTCOMES = (
    "right", "refused, engine too", "refused, engine right", "refused",
    "wrong, engine right", "traceback", "wrong, engine too", "wrong", "died", "not-arrays",
)  # fmt: skip


def main() -> int:
    """Run, write the page, and fail when a bundle is wrong where its engine is right, or on a traceback."""
    asked = _arguments()
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        cases = [case for group in asked.only for case in _GROUPS[group](Path(folder))]
        told = run_all(cases, asked.workers, lambda line: print(line, flush=True))
    if asked.json:
        asked.json.write_text(json.dumps([{**case._asdict(), **answer} for case, answer in told.items()], indent=1))
    page = report(told)
    print(page)
    if asked.report:
        asked.report.write_text(page)
    return int(any(is_fault(answer) for answer in told.values()))


def is_fault(answer: Mapping[str, Any]) -> bool:
    """Tell whether an outcome must not happen."""
    return answer["outcome"] in ("wrong", "wrong, engine right", "traceback")


def report(told: Mapping[Case, Mapping[str, Any]]) -> str:
    """Return the page: a table of counts a group, and every case that is not right."""
    lines = ["# Conformance", "", "What `make conformance` found with " + _versions() + ".", ""]
    for group in dict.fromkeys(case.group for case in told):
        lines += [*_table(group, told), "", *_listed(group, told), ""]
    return "\n".join(lines).rstrip() + "\n"


def _versions() -> str:
    return ", ".join(f"{name} {version(name)}" for name in PACKAGES)


def _table(group: str, told: Mapping[Case, Mapping[str, Any]]) -> Iterator[str]:
    counts: dict[tuple[str, str], Counter[str]] = {}
    for case, answer in told.items():
        if case.group == group:
            counts.setdefault((case.target, case.precision), Counter())[answer["outcome"]] += 1
    present = [outcome for outcome in OUTCOMES if any(outcome in count for count in counts.values())]
    yield f"## {group}"
    yield ""
    yield "| target | precision | " + " | ".join(present) + " |"
    yield "|---" * (2 + len(present)) + "|"
    for (target, precision), count in counts.items():
        yield f"| `{target}` | {precision} | " + " | ".join(str(count[outcome]) for outcome in present) + " |"


def _listed(group: str, told: Mapping[Case, Mapping[str, Any]]) -> Iterator[str]:
    rows = [
        (case, answer)
        for case, answer in told.items()
        if case.group == group and answer["outcome"] not in ("right", "refused, engine too", "not-arrays")
    ]
    if not rows:
        return
    yield "| case | target | precision | outcome | reason |"
    yield "|---|---|---|---|---|"
    for case, answer in rows:
        reason = (answer["note"].strip().splitlines() or [""])[-1][:200].replace("|", "\\|")
        yield f"| {case.name} | `{case.target}` | {case.precision} | {answer['outcome']} | {reason} |"


def _nodes(folder: Path) -> list[Case]:
    names = write_node_cases(folder)
    return [Case("nodes", name, target, folder=str(folder)) for name in names for target in TARGETS]


def _modules(_folder: Path) -> list[Case]:
    from conformance_modules import MODULES

    return [Case("modules", name, target) for name in MODULES for target in ENGINES]


def _architectures(_folder: Path) -> list[Case]:
    from conformance_architectures import ARCHITECTURES

    return [
        Case("architectures", name, target, precision)
        for precision in ("fp32", "int8")
        for name in ARCHITECTURES
        for target in ENGINES
    ]


_GROUPS = {"nodes": _nodes, "modules": _modules, "architectures": _architectures}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=sorted(_GROUPS), default=list(_GROUPS))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--report", type=Path, help="the page to write")
    parser.add_argument("--json", type=Path, help="every case with its outcome")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
