"""What it costs to import ipj_edge over numpy, and to print the help: medians of alternating fresh processes."""

from __future__ import annotations

import statistics
import subprocess
import sys
from time import perf_counter

COMMANDS = {
    "python": ["-c", "pass"],
    "import numpy": ["-c", "import numpy"],
    "import ipj_edge": ["-c", "import numpy, ipj_edge"],
    "ipj_edge.load": ["-c", "import ipj_edge; ipj_edge.load"],
    "ipj-edge --help": ["-m", "ipj_edge", "--help"],
}
ROUNDS = 15

if __name__ == "__main__":
    spent: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS):
        for name, arguments in COMMANDS.items():
            start = perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
            spent[name].append(perf_counter() - start)
    medians = {name: 1e3 * statistics.median(times) for name, times in spent.items()}
    for name, median in medians.items():
        print(f"{name:<20}{median:8.1f} ms")
    print(f"import ipj_edge over numpy: {medians['import ipj_edge'] - medians['import numpy']:.1f} ms (goal: 40)")
    print(f"ipj_edge.load over numpy: {medians['ipj_edge.load'] - medians['import numpy']:.1f} ms")
    print(f"ipj-edge --help: {medians['ipj-edge --help']:.1f} ms (goal: 300)")
