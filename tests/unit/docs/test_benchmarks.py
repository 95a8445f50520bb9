"""Benchmarks can be started as their docstrings say: every module imports from the root of the repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in sorted((ROOT / "benchmarks").rglob("*.py"))
]


def test_every_benchmark_imports_from_the_root_of_the_repository() -> None:
    assert len(MODULES) > 20
    script = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
    ran = subprocess.run(
        [sys.executable, "-c", script, *MODULES], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr


def test_make_benchmarks_runs_every_module_that_can_be_run_and_no_other() -> None:
    shown = subprocess.run(
        ["make", "--dry-run", "benchmarks", "PYTHON=true"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    listing = shown[shown.index("$(") + 2 : shown.index("); do")]
    listed = subprocess.run(["sh", "-c", listing], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    runnable = [name for name in MODULES if "__main__" in (ROOT / (name.replace(".", "/") + ".py")).read_text()]
    assert sorted(listed) == runnable
