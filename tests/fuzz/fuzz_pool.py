"""Child processes that take a hundred cases each, and are replaced when one dies or does not answer."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec
from fuzz_case import Case, Told

CHILD = Path(__file__).with_name("fuzz_child.py")
CASES = 100
LIMIT_S = 20.0
START_S = 60.0

Question = dict[str, Any]


class Child:
    """One process at a time."""

    def __init__(self, seeds: Path, folder: Path) -> None:
        self._seeds, self._folder = seeds, folder
        self._process: subprocess.Popen[str] | None = None
        self._taken = 0

    def ask(self, question: Question) -> tuple[str, Told]:
        """Run a case and return its kind and what came of it; the kind is empty where the child did not say."""
        if self._process is None or self._taken >= CASES:
            self.close()
            self._process, self._taken = self._start(), 0
        self._taken += 1
        folder = self._folder / "root"
        line, silent = self._exchange(self._process, json.dumps({**question, "folder": str(folder)}))
        if line:
            answer = json.loads(line)
            return answer.pop("kind"), msgspec.convert(answer, Told)
        status = self.close(0.2 if silent else 5)
        shutil.rmtree(folder, ignore_errors=True)
        if silent or status == -signal.SIGXCPU:
            return "", Told(outcome="hang", note=f"no answer in {LIMIT_S:g} s; status {status}\n{self._stack()}")
        return "", Told(outcome="died", note=f"the child ended with {status}")

    def _stack(self) -> str:
        """Return where the child was shortly before its time was up."""
        path = self._folder / "stack"
        return path.read_text(errors="replace")[:2000] if path.exists() else ""

    def close(self, grace_s: float = 5) -> int:
        """End the process with everything it started and return its exit status."""
        if self._process is None:
            return 0
        process, self._process = self._process, None
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
        return process.wait()

    def _start(self) -> subprocess.Popen[str]:
        # Warnings are shown to nobody here; one thread an engine, as every core has a child of its own.
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        return subprocess.Popen(
            [sys.executable, str(CHILD), str(self._seeds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            env={**os.environ, **threads, "PYTHONDONTWRITEBYTECODE": "1", "ORT_DISABLE_TELEMETRY": "1"},
        )

    def _exchange(self, process: subprocess.Popen[str], question: str) -> tuple[str, bool]:
        """Return the answer, and whether there was silence; both are empty when the process ended."""
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(question + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return "", False
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(LIMIT_S + (START_S if self._taken == 1 else 0)):
                return "", True
        return process.stdout.readline(), False


def run_all(
    questions: Iterable[Question], seeds: Path, folder: Path, workers: int
) -> Iterator[tuple[Question, str, Told]]:
    """Run cases in a pool and yield what came of each, in order."""
    children: SimpleQueue[Child] = SimpleQueue()
    every = []
    for index in range(workers):
        (folder / f"worker{index}").mkdir()
        every.append(Child(seeds, folder / f"worker{index}"))
        children.put(every[-1])

    def one(question: Question) -> tuple[Question, str, Told]:
        child = children.get()
        try:
            return question, *child.ask(question)
        finally:
            children.put(child)

    try:
        with ThreadPoolExecutor(workers) as pool:
            yield from _mapped(pool, one, questions, 4 * workers)
    finally:
        for child in every:
            child.close()


def _mapped(
    pool: ThreadPoolExecutor, one: Callable[[Question], Any], questions: Iterable[Question], ahead: int
) -> Iterator[Any]:
    """Map in order and a little ahead, so that a million questions do not wait in memory."""
    waiting: list[Any] = []
    for question in questions:
        waiting.append(pool.submit(one, question))
        if len(waiting) >= ahead:
            yield waiting.pop(0).result()
    for future in waiting:
        yield future.result()


def asked(case: Case) -> Question:
    """Return the question for a case that was kept."""
    return {"case": msgspec.to_builtins(case)}
