"""Child processes that each take many cases and are replaced when one dies or does not end."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

CHILD = Path(__file__).with_name("conformance_child.py")
LIMIT_S = 120.0


class Case(NamedTuple):
    """One thing to convert: a node test (in a folder of its own), or a module or architecture by name."""

    group: str
    name: str
    target: str
    precision: str = "fp32"
    folder: str = ""


class Child:
    """One process; replaced by another when a case kills it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def ask(self, case: Case, *, bare: bool = False) -> dict[str, Any]:
        """Have a case run; a process that dies or stays silent is the case's outcome."""
        if self._process is None:
            self._process = self._start()
        question = json.dumps({**case._asdict(), "bare": bare})
        answer = self._exchange(self._process, question)
        if answer is None:
            status = self.close()
            return {"outcome": "died", "note": f"the process ended with {status}"}
        return answer if isinstance(answer, dict) else {"outcome": "bare", "note": answer}

    def close(self) -> int:
        """End the process with everything it started and return its exit status."""
        if self._process is None:
            return 0
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        status = self._process.wait()
        self._process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process = None
        return status

    @staticmethod
    def _start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    @staticmethod
    def _exchange(process: subprocess.Popen[str], question: str) -> Any:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(question + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(LIMIT_S):
                return None
        line = process.stdout.readline()
        return json.loads(line) if line else None


def judge(child: Child, case: Case) -> dict[str, Any]:
    """Run one case; where a node test is not right, say whether the engine by itself is."""
    told = child.ask(case)
    if case.group != "nodes" or told["outcome"] in ("right", "not-arrays"):
        return told
    bare = child.ask(case, bare=True)
    outcome = told["outcome"]
    if outcome in ("refused", "wrong"):
        outcome += ", engine right" if bare["note"] == "" else ", engine too"
    return {"outcome": outcome, "note": told["note"], "engine": bare["note"]}


def run_all(
    cases: Iterable[Case], workers: int, tell: Callable[[str], None] = lambda _line: None
) -> dict[Case, dict[str, Any]]:
    """Run cases in a pool and return the outcome of each."""
    children: SimpleQueue[Child] = SimpleQueue()
    every = [Child() for _ in range(workers)]
    for child in every:
        children.put(child)

    def one(case: Case) -> tuple[Case, dict[str, Any]]:
        child = children.get()
        try:
            told = judge(child, case)
        finally:
            children.put(child)
        tell(f"{case.name} {case.target} {case.precision}: {told['outcome']}")
        return case, told

    try:
        with ThreadPoolExecutor(workers) as pool:
            return dict(pool.map(one, cases))
    finally:
        for child in every:
            child.close()
