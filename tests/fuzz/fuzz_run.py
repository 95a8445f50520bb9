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
        return f"{told.outcome}: {re.sub(r'[0-9]+', 'N', told.note.partition(chr(10))[0])[:90]}"
    places = re.findall(r'File ".*?/([\w./-]+)", line (\d+)', told.note)
    last = told.note.strip().splitlines()[-1]
    ours = [f"{name}:{line}" for name, line in places if "ipj_edge" in name]
    return f"traceback: {ours[-1] if ours else ''} {last.split(':')[0][:100]}"


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
    account = _Account(given.seed, tuple(given.kind), keeps=not given.no_keep)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        seeds, folder = Path(name) / "seeds", Path(name) / "work"
        seeds.mkdir()
        folder.mkdir()
        make_seeds(seeds)
        asked = questions(given.cases, given.seed, account.kinds)
        for question, kind, told in run_all(asked, seeds, folder, given.workers):
            account.add(seeds, question["number"], kind, told)
    account.show()
    return 1 if account.failures else 0


class _Account:
    """What came of the cases of a run."""

    def __init__(self, seed: int, kinds: tuple[str, ...], *, keeps: bool) -> None:
        self.kinds, self.failures = kinds, Counter[tuple[str, str]]()
        self._seed, self._keeps = seed, keeps
        self._ended, self._seconds = Counter[tuple[str, str]](), Counter[str]()
        self._first: dict[tuple[str, str], int] = {}

    def add(self, seeds: Path, number: int, kind: str, told: Told) -> None:
        """Count a case; keep the first of each label of those that failed."""
        case = case_of(seeds, self._seed, number, self.kinds) if told.outcome != "clean" else None
        named = kind or (case.kind if case else "")
        self._ended[named, told.outcome if told.outcome != "clean" else told.note[:6]] += 1
        self._seconds[named] += told.seconds
        if case is None or not failed(named, told):
            return
        key = named, label(told)
        self.failures[key] += 1
        if key not in self._first:
            self._first[key] = number
            kept = f" kept as {keep(case, told).name}" if self._keeps else ""
            print(f"--- {named} case {number}: {told.outcome}{kept}\n{told.note[-1500:]}", flush=True)

    def show(self) -> None:
        """Print how each kind ended, and what failed, most first."""
        for kind in sorted({kind for kind, _ in self._ended}):
            outcomes = {outcome: count for (each, outcome), count in sorted(self._ended.items()) if each == kind}
            print(f"{kind}: {outcomes}, {self._seconds[kind] / sum(outcomes.values()):.3f} s a case")
        print(f"=== {sum(self.failures.values())} failures")
        for (kind, text), count in self.failures.most_common():
            print(f"{count:5} {kind}: {text} (case {self._first[kind, text]})")


if __name__ == "__main__":
    sys.exit(main())
