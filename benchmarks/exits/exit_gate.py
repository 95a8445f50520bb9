"""Cost of the gate: what one decision to leave costs on the host, per rule.

    python -m benchmarks.exits.exit_gate

Prints microseconds of one decision for one row (`Gate.row_leaves`), of the vectorised form for that same row, and of
the vectorised form per row of a batch. Goal: below 10 µs for one row of 10 classes. The last table shows up to how many
classes a loop over Python floats is worth it (``FEW_CLASSES``).
"""

from __future__ import annotations

import timeit
from collections.abc import Callable
from functools import partial
from math import exp

import numpy as np

from ipj_edge.exits import Gate, make_policy
from ipj_edge.exits.policy.softmax import FEW_CLASSES, row_exponents
from ipj_edge.plugins import EXIT_RULES, load_exit_rule, names

GOAL_S = 10e-6
THRESHOLDS = {"patience": 2.0, "change": -0.02}


def seconds(call: Callable[[], object]) -> float:
    """Return the least mean time of a call over seven repeats."""
    number = 2000
    return min(timeit.repeat(call, number=number, repeat=7)) / number


def outputs(rows: int, classes: int) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [(4 * random.normal(size=(rows, classes))).astype(np.float32) for _ in range(2)]


def gate_of(name: str) -> Gate:
    rule = load_exit_rule(name)
    parameters = {"temperature": (1.3, 1.2, 1.1)} if rule.parameters else None
    threshold = THRESHOLDS.get(name, 0.95)
    return Gate(make_policy(rule, [threshold] * 2, ["logits"] * 3, parameters=parameters), rule, "logits")


def rules() -> bool:
    print(f"{'rule':16} {'classes':>7} {'one row':>9} {'vectorised':>11} {'per row of 32':>14}")
    reached = True
    for name in names(EXIT_RULES):
        gate = gate_of(name)
        for classes in (10, 100, 1000):
            one, many = outputs(1, classes), outputs(32, classes)
            row_s = seconds(partial(gate.row_leaves, 1, one))
            vector_s = seconds(partial(gate.leaves, 1, one))
            batch_s = seconds(partial(gate.leaves, 1, many)) / 32
            print(f"{name:16} {classes:7} {1e6 * row_s:8.2f}µ {1e6 * vector_s:10.2f}µ {1e6 * batch_s:13.2f}µ")
            reached &= classes > 10 or row_s < GOAL_S
    return reached


def crossover() -> None:
    print(f"\nmax-probability, one row: Python floats (used up to {FEW_CLASSES} classes) against numpy")
    print(f"{'classes':>7} {'floats':>9} {'numpy':>9}")
    gate, exponents = gate_of("max-probability"), row_exponents("logits", 1.3)
    for classes in (2, 10, 20, 32, 40, 60):
        row = outputs(1, classes)
        floats_s = seconds(partial(floats, exponents, row[-1]))
        numpy_s = seconds(partial(gate.leaves, 1, row))
        print(f"{classes:7} {1e6 * floats_s:8.2f}µ {1e6 * numpy_s:8.2f}µ")


def floats(exponents: Callable[[np.ndarray], list[float]], row: np.ndarray) -> bool:
    return 1.0 / sum(map(exp, exponents(row))) >= 0.95


if __name__ == "__main__":
    met = rules()
    crossover()
    print(f"\ngoal of {1e6 * GOAL_S:g} µs for one row of 10 classes: {'met' if met else 'MISSED'}")
    raise SystemExit(0 if met else 1)
