"""Fuzz as long as one wants: ``python tests/fuzz/fuzz_run.py --cases 100000 --seed 7 [--kind onnx]``.

What fails is kept in ``tests/fuzz/found/``, where the tests try it again.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
from fuzz_case import Case, Told
from fuzz_kinds import KINDS, case_of
from fuzz_pool import Question, run_all
from fuzz_seeds import make_seeds

FOUND = Path(__file__).with_name("found")


def failed(kind: str, told: Told) -> bool:
    """Say whether an outcome is a fault of ours. An engine that dies on a file with right hashes is a result."""
    return told.outcome != "clean" and not (told.outcome == "died" and KINDS[kind].engine)


def questions(cases: int, seed: int, kinds: tuple[str, ...] = ()) -> Iterator[Question]:
    """Yield the questions of a run."""
    return ({"seed": seed, "number": number, "kinds": kinds} for number in range(cases))


def label(told: Told) -> str:
    """Return what tells this outcome from others: its kind, and the place and class of a traceback."""
    if told.outcome != "traceback":
        return f"{told.outcome}: {re.sub(r'[0-9]+', 'N', told.note)[:90]}"
    places = re.findall(r'File ".*?/([\w./-]+)", line (\d+)', told.note)
    last = told.note.strip().splitlines()[-1]
    ours = [f"{name}:{line}" for name, line in places if "ipj_edge" in name]
    return f"traceback: {ours[-1] if ours else ''} {last[:100]}"


def keep(case: Case, told: Told, found: Path = FOUND) -> Path:
    """Write a case into the folder of those that the tests try again; one of a label is enough."""
    found.mkdir(exist_ok=True)
    digest = hashlib.sha256(label(told).encode()).hexdigest()[:10]
    path = found / f"{case.kind}-{told.outcome}-{digest}.json"
    if not path.exists():
        path.write_bytes(msgspec.json.encode(case))
    return path


def main() -> int:
    """Run cases, print what failed, and return 1 when anything did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", action="append", default=[], choices=sorted(KINDS))
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--no-keep", action="store_true", help="Print only.")
    given = parser.parse_args()
    labels: Counter[tuple[str, str]] = Counter()
    ended: Counter[tuple[str, str]] = Counter()
    seconds: Counter[str] = Counter()
    examples: dict[tuple[str, str], tuple[int, str]] = {}
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        seeds, folder = Path(name) / "seeds", Path(name) / "work"
        seeds.mkdir()
        folder.mkdir()
        make_seeds(seeds)
        for question, kind, told in run_all(questions(given.cases, given.seed, tuple(given.kind)), seeds, folder, given.workers):
            case = None if kind else case_of(seeds, given.seed, question["number"], tuple(given.kind))
            kind = kind or (case.kind if case else "")
            ended[kind, told.outcome if told.outcome != "clean" else told.note[:6]] += 1
            seconds[kind] += told.seconds
            if failed(kind, told):
                key = kind, label(told)
                labels[key] += 1
                if key not in examples:
                    examples[key] = question["number"], told.note
                    case = case or case_of(seeds, given.seed, question["number"], tuple(given.kind))
                    kept = "" if given.no_keep else f" kept as {keep(case, told).name}"
                    print(f"--- {kind} case {question['number']}: {told.outcome}{kept}\n{told.note[-1500:]}", flush=True)
    _print(labels, ended, seconds, examples)
    return 1 if labels else 0


def _print(labels: Counter[tuple[str, str]], ended: Counter[tuple[str, str]], seconds: Counter[str], examples: dict[tuple[str, str], tuple[int, str]]) -> None:
    print("\n=== ends")
    for kind in sorted({kind for kind, _ in ended}):
        outcomes = {outcome: count for (each, outcome), count in sorted(ended.items()) if each == kind}
        print(f"{kind}: {outcomes}, {seconds[kind] / sum(outcomes.values()):.3f} s a case")
    print("\n=== failures")
    for (kind, text), count in sorted(labels.items(), key=lambda item: -item[1]):
        print(f"{count:5} {kind}: {text} (case {examples[kind, text][0]})")


if __name__ == "__main__":
    sys.exit(main())
