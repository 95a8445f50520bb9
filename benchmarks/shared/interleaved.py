"""Timing several calls against each other in one run, so that a busy machine slows all of them alike."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping


def medians_s(calls: Mapping[str, Callable[[], object]], rounds: int = 5000) -> dict[str, float]:
    """Return the median seconds of every call, taken in a new random order each round.

    Each call is made twice in a row and the second one timed: the first brings its memory back into the caches.
    """
    for call in calls.values():
        for _ in range(200):
            call()
    order = list(calls)
    rng = random.Random(0)
    samples: dict[str, list[int]] = {name: [] for name in calls}
    for _ in range(rounds):
        rng.shuffle(order)
        for name in order:
            call = calls[name]
            call()
            start = time.perf_counter_ns()
            call()
            samples[name].append(time.perf_counter_ns() - start)
    return {name: statistics.median(values) / 1e9 for name, values in samples.items()}


def report(title: str, session: float, engine: float, others: Mapping[str, float]) -> None:
    """Print a session's median against the engine's own fastest call, in microseconds."""
    print(title)
    print(f"  Session.run                   {1e6 * session:8.2f} µs")
    print(f"  engine's own fastest call     {1e6 * engine:8.2f} µs")
    print(f"  difference                    {1e6 * (session - engine):8.2f} µs")
    for name, seconds in others.items():
        print(f"  ({name}: {1e6 * seconds:.2f} µs)")
