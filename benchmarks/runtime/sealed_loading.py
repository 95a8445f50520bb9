"""What it costs to run exactly what was hashed: a target opens a bundle, against hashing and opening by path.

Both open the same bundle in alternating rounds of one process, at one thread; the figure is the ratio of the medians.
Goal: about equal, at most 1.25. Bundles are those of ``make demo``, or any that are named.

    python -m benchmarks.runtime.sealed_loading [BUNDLE …]
"""

from __future__ import annotations

import hashlib
import statistics
import sys
from pathlib import Path
from time import perf_counter

import numpy as np
from benchmarks.runtime.model_overhead import bare_call

from ipj_edge.bundles.bundle import open_bundle
from ipj_edge.plugins import load_target
from ipj_edge.values import Settings

ROUNDS = 15
GOAL = 1.25


def by_path(bundle: Path, example: np.ndarray) -> None:
    """Hash the files that the engine reads, then open them by their path."""
    manifest = open_bundle(bundle).manifest
    load_target(manifest.target)  # looking the plugin up costs both alike
    for record in manifest.files:
        hashlib.sha256((bundle / record.path).read_bytes()).hexdigest()
    bare_call(bundle, example)


def sealed(bundle: Path) -> None:
    """Have the target open a bundle as `ipj_edge.load` does: sealed copies, hashed and opened."""
    opened = open_bundle(bundle)
    for session in load_target(opened.manifest.target).open(opened, Settings(threads=1)):
        session.close()


def main() -> int:
    """Print a line a bundle; the number of goals missed is the exit code."""
    missed = 0
    for bundle in map(Path, sys.argv[1:] or sorted(Path("demo/dist").glob("*.ipj"))):
        manifest = open_bundle(bundle).manifest
        takes = manifest.stages[0].takes[0]
        example = np.zeros([size if isinstance(size, int) else 1 for size in takes.shape], takes.dtype)
        rounds = []
        for _ in range(ROUNDS + 1):
            start = perf_counter()
            by_path(bundle, example)
            middle = perf_counter()
            sealed(bundle)
            rounds.append((middle - start, perf_counter() - middle))
        path_s, sealed_s = (statistics.median(column) for column in zip(*rounds[1:], strict=True))
        missed += sealed_s / path_s > GOAL
        size = sum(record.size_bytes for record in manifest.files)
        print(f"{bundle.name:<40} {size / 1e6:7.2f} MB  by path {1e3 * path_s:7.1f} ms, "
              f"sealed {1e3 * sealed_s:7.1f} ms, ratio {sealed_s / path_s:.2f} (goal {GOAL})")  # fmt: skip
    return missed


if __name__ == "__main__":
    sys.exit(main())
