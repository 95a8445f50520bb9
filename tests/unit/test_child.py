"""Programs that we start end in time, and so does what they started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from ipj_edge import child

# A script around the program that works, as `conda run` or a vendor's wrapper is one.
WRAPPER = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1], *sys.argv[2:]])"
WORKER = """
import os, signal, sys, time
if sys.argv[2] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1] + ".part", "w").write(str(os.getpid()))
os.rename(sys.argv[1] + ".part", sys.argv[1])
while True: time.sleep(0.05)
"""


def wrapped(note: Path, manner: str = "meek") -> list[str]:
    return [sys.executable, "-c", WRAPPER, WORKER, str(note), manner]


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Callable[[], psutil.Process]]:
    """The process that works, once it has begun; it never outlives the test."""
    found: list[psutil.Process] = []

    def begun() -> psutil.Process:
        end_s = time.monotonic() + 60
        while not (tmp_path / "note").exists():
            assert time.monotonic() < end_s, "the worker never began"
            time.sleep(0.02)
        found.append(psutil.Process(int((tmp_path / "note").read_text())))
        return found[0]

    yield begun
    for each in found:
        if each.is_running():
            each.kill()


def test_what_a_program_printed_and_how_it_ended_is_returned(tmp_path):
    code = "import os, sys; print(os.getcwd()); sys.stderr.buffer.write(b'\\xff'); sys.exit(3)"
    ran = child.run_program([sys.executable, "-c", code], timeout_s=60, cwd=tmp_path)
    assert (ran.returncode, ran.stdout.strip(), ran.stderr) == (3, str(tmp_path), "\ufffd")


def test_a_program_that_is_not_there_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        child.run_program([str(tmp_path / "none")], timeout_s=1)


@pytest.mark.parametrize("manner", ["meek", "stubborn"])
def test_a_program_out_of_time_ends_with_what_it_started(tmp_path, worker, monkeypatch, manner):
    # Time is up as soon as the worker has begun.
    begun: list[psutil.Process] = []

    class Patient(subprocess.Popen):
        def communicate(self, input=None, timeout=None):  # noqa: A002
            begun.append(worker())
            return super().communicate(input, 0.01)

    monkeypatch.setattr(subprocess, "Popen", Patient)
    with pytest.raises(subprocess.TimeoutExpired):
        child.run_program(wrapped(tmp_path / "note", manner), timeout_s=1)
    gone, running = psutil.wait_procs(begun, timeout=20)
    assert (len(gone), running) == (1, [])


def test_what_a_process_started_is_found_at_every_depth_and_nothing_of_a_dead_one(tmp_path, worker):
    process = subprocess.Popen(wrapped(tmp_path / "note"))
    inner = worker()
    assert inner.pid in [each.pid for each in child.started_by(process.pid)]
    assert inner.pid in [each.pid for each in child.started_by(os.getpid())]
    inner.kill()
    process.wait(20)
    assert child.started_by(process.pid) == []


@pytest.mark.parametrize("manner", ["meek", "stubborn"])
def test_the_measured_command_ends_with_what_it_started(tmp_path, worker, manner):
    command = [
        sys.executable,
        "-m",
        "ipj_edge",
        "measure",
        "--probe",
        "none",
        "--",
        *wrapped(tmp_path / "note", manner),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    inner = worker()
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    assert psutil.wait_procs([inner], timeout=20)[1] == []


ESCAPING = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1] + ".part", "w").write(str(os.getpid()))
        os.rename(sys.argv[1] + ".part", sys.argv[1])
        while True: time.sleep(0.05)
    os._exit(0)
while not os.path.exists(sys.argv[1]): time.sleep(0.02)
"""


def test_a_process_that_left_its_session_and_its_parent_ends_with_the_program(tmp_path):
    note = tmp_path / "note"
    ran = child.run_program([sys.executable, "-c", ESCAPING, str(note)], timeout_s=60)
    assert ran.returncode == 0
    assert not psutil.pid_exists(int(note.read_text()))


def test_a_program_that_computes_without_end_is_ended_by_its_cpu_time():
    limited = child.ChildLimits(memory_bytes=2**30, cpu_s=1)
    ran = child.run_program([sys.executable, "-c", "while True: pass"], timeout_s=120, limited=limited)
    assert ran.returncode == -signal.SIGXCPU
    assert child.why(ran.returncode, ran.stderr, limited) == "it used all of its 1 s of CPU time"


@pytest.mark.parametrize("light", [False, True])
def test_a_program_that_allocates_without_end_is_refused_memory(light):
    limited = child.ChildLimits(memory_bytes=2**29, cpu_s=60)
    code = "import time; time.sleep(0.5); kept = []\nwhile True: kept.append(bytearray(10**8))"
    ran = child.run_program([sys.executable, "-c", code], timeout_s=120, limited=limited, light=light)
    assert ran.returncode == 1
    assert child.why(ran.returncode, ran.stderr, limited) == "it needs more than the 0.5 GiB of memory it may take"


def test_a_child_ends_with_whoever_started_it_even_when_that_was_killed(tmp_path, worker):
    code = (
        "import sys; from ipj_edge import child; child.run_program([sys.executable, '-c', *sys.argv[1:]], timeout_s=90)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, WORKER, str(tmp_path / "note"), "stubborn"])
    inner = worker()
    parent.kill()
    parent.wait(60)
    assert psutil.wait_procs([inner], timeout=20)[1] == []


def test_a_child_ends_as_its_program_does():
    assert child.run_program([sys.executable, "-c", "import os; os.abort()"], timeout_s=60).returncode == -6


def test_the_memory_of_a_child_is_a_share_of_what_is_free_and_never_too_little(monkeypatch):
    monkeypatch.setattr(child.host, "available_memory", lambda: 10 * 2**30)
    assert child.limits(10).memory_bytes == 8 * 2**30
    monkeypatch.setattr(child.host, "available_memory", lambda: 2**20)
    assert child.limits(10).memory_bytes == child.LEAST_MEMORY
